"""The order of all missing runs."""

from vbdrop.experiments import Book, ablations, protocol_of
from vbdrop.experiments.run_order import queued


def cost(config):
    """Dearer with the number of epochs and units, and for VBD."""
    factor = 3.0 if config.method.startswith("vbd") else 1.0
    return factor * config.budget.epochs * config.model_args.get("units", 300)


def books(tmp_path, *numbers):
    protocols = [protocol_of(number) if number else ablations() for number in numbers]
    return [Book(protocol, tmp_path, {"mnist": "ab", "cifar10": "cd"}) for protocol in protocols]


def test_what_fills_a_cell_of_the_paper_comes_first_and_the_cheapest_cell_before_the_others(tmp_path):
    runs = queued(books(tmp_path, 1), cost)
    assert [(run.config.method, run.config.model_args["units"]) for run in runs[:2]] == [("plain", 100), ("plain", 340)]
    configs = [run.config for run in runs]
    assert len({config.id for config in configs}) == len(configs)
    first_seed = [i for i, config in enumerate(configs) if config.method == "plain" and config.budget.seed == 0]
    other_seeds = [i for i, config in enumerate(configs) if config.method == "plain" and config.budget.seed > 0]
    bernoulli = [i for i, config in enumerate(configs) if config.method == "bernoulli-dropout"]
    vbd = [i for i, config in enumerate(configs) if config.method == "vbd-rates"]
    assert len(bernoulli) == len(vbd) == 8  # one trial for each setting, and nothing on all data yet
    assert max(bernoulli) < min(vbd), "cheap before dear"
    assert max(vbd) < min(other_seeds), "further seeds come after the cells"
    assert max(first_seed) < max(vbd)
    type_a = [i for i, run in enumerate(runs) if run.config.hyper.get("noise") == "a"]
    assert min(type_a) > max(other_seeds), "rows that the paper does not have come last"


def test_trials_that_several_cells_share_come_before_dearer_ones_per_cell(tmp_path):
    """Table 1 has five widths for one set of trials, Table 3 one network."""

    def equal(config):
        return 1.0 if config.n_valid else 3.0

    made = [Book(protocol_of(number), tmp_path, {"mnist": "ab", "svhn": "cd"}) for number in (3, 1)]
    tried = [run.table for run in queued(made, equal) if run.config.method == "bernoulli-dropout"]
    assert tried == ["Table 1"] * 8 + ["Table 3"] * 8  # (12 + 5 * 3) / 5 a cell against 12 + 3


def test_a_cell_whose_setting_is_chosen_is_filled_before_dearer_ones_are_tried(tmp_path, write_trials):
    (book,) = made = books(tmp_path, 1)
    write_trials(book, "bernoulli", "340", [{"error": 2.0 + index} for index in range(8)])
    methods = [(run.config.method, run.config.n_valid) for run in queued(made, cost)]
    first = methods.index(("bernoulli-dropout", 0))
    assert ("bernoulli-dropout", 5000) not in methods
    assert first < methods.index(("vbd-rates", 5000))


def test_a_cell_without_a_figure_comes_before_one_whose_setting_may_change(tmp_path, write_record):
    (book,) = made = [Book(protocol_of(1), tmp_path, {"mnist": "ab"})]
    write_record(book.cell("bernoulli", "340").finals[0])
    runs = queued(made, cost)
    bernoulli = [i for i, run in enumerate(runs) if run.config.method == "bernoulli-dropout"]
    concrete = [i for i, run in enumerate(runs) if run.config.method == "concrete-dropout"]
    assert min(bernoulli) < max(concrete), "other widths have no figure yet"
    for column in book.protocol.columns:
        write_record(book.cell("bernoulli", column.key).finals[0])
    runs = queued(made, cost)
    dear = [i for i, run in enumerate(runs) if run.config.method == "vbd-rates"]
    seeds = [i for i, run in enumerate(runs) if run.config.method == "plain" and run.config.budget.seed > 0]
    bernoulli = [i for i, run in enumerate(runs) if run.config.method == "bernoulli-dropout"]
    assert max(dear) < min(bernoulli) < max(bernoulli) < min(seeds)


def test_ablations_come_last_and_a_run_of_two_tables_is_there_once(tmp_path):
    runs = queued(books(tmp_path, 0, 4, 5), cost)
    tables = [run.table for run in runs]
    assert tables.index("Ablations") == len(tables) - tables.count("Ablations")
    ids = [run.config.id for run in runs]
    assert len(set(ids)) == len(ids)
    of_tables = [run for run in runs if run.table != "Ablations"]
    shared = [run for run in of_tables if run.config.method == "sparse-vd" and run.config.model == "lenet-5"]
    assert len(shared) == 1  # the trial of both tables


def test_what_has_ended_is_not_there(tmp_path, write_record):
    made = books(tmp_path, 4)
    runs = queued(made, cost)
    write_record(runs[0].config)
    assert runs[0].config.id not in [run.config.id for run in queued(made, cost)]
    assert len(queued(made, cost)) == len(runs) - 1
