import os
import re
from pathlib import Path

import nbformat
import pytest
from tests.stress import only_in_stress
from tests.trained import above, chosen_seed

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "plain_to_small.ipynb"


def run_it():
    """The notebook after a run in a real kernel, and what was printed."""
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:  # it runs in a process of its own
        cell.source = cell.source.replace("torch.manual_seed(0)", f"torch.manual_seed({1000 * chosen_seed()})")
    where = {"metadata": {"path": str(EXAMPLES)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where)
    client.execute(env=os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    return notebook


def outputs(notebook, kind):
    return [output for cell in notebook.cells for output in cell.get("outputs", []) if kind in str(output)]


def test_it_is_kept_with_the_outputs_of_a_run():
    kept = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(kept)
    assert len(outputs(kept, "image/png")) == 5
    assert all(cell.execution_count for cell in kept.cells if cell.cell_type == "code")
    assert NOTEBOOK.stat().st_size < 300_000


@only_in_stress
@pytest.mark.trained
def test_it_runs_and_the_small_network_gives_the_same():
    ran = run_it()
    assert len(outputs(ran, "image/png")) == 5
    said = "".join(output.get("text", "") for output in outputs(ran, "text"))
    before, after = re.search(r"test error (\S+) % before, (\S+) % after", said).groups()
    assert before == after
    sizes = re.search(r"([\d,]+) bytes of .*? ([\d,]+) bytes", said).groups()
    dense, stored = (int(size.replace(",", "")) for size in sizes)
    above(5, dense / stored, mean=11.8, sd=0.22)
