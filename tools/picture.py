"""Take the README's picture from the report page of `vbdrop demo`: needs Chromium.

python tools/picture.py runs/demo/lenet-300-100.html docs/assets/learned.png
"""

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

SIZE = (1040, 262)
SCALE = 1.5


def main(arguments: list[str] | None = None) -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description="Take the README's picture from a report page.")
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    args = parser.parse_args(arguments)
    browser = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("there must be a Chromium on the PATH; got none.")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "picture.html"
        page.write_text(three_figures(args.report.read_text()))
        flags = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--force-device-scale-factor={SCALE}"]
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        subprocess.run([browser, *flags, size, f"--screenshot={args.picture}", page.as_uri()], check=True)


def three_figures(report: str) -> str:
    """Make a page of three figures of a report: units of the plain network, the remaining units, and the noise.

    Args:
        report: The page about the two runs of the demo.
    """
    figures = re.findall(r"<figure.*?</figure>", report, flags=re.DOTALL)
    learned, plain = (figure for figure in figures if "12 units of" in figure)
    noise = next(figure for figure in figures if "How noisy the weights are" in figure)
    titles = {
        "Trained plainly: 12 of 300 units": plain,
        "With learned rates: what is left": learned,
        "Noise of the weights; grey goes": noise,
    }
    columns = "".join(f"<div><p>{title}</p>{_without_caption(figure)}</div>" for title, figure in titles.items())
    head = re.search(r"<head>.*?</head>", report, flags=re.DOTALL)
    style = (
        "<style>body{margin:0;padding:12px 20px;width:1000px;max-width:none}"
        "main{display:grid;grid-template-columns:1fr 1fr 1fr;gap:24px;margin:0;padding:0;max-width:none}"
        "main p{margin:0 0 6px;font:600 15px sans-serif}figure{margin:0}</style>"
    )
    return f"<!doctype html><html lang='en'>{head[0] if head else ''}{style}<body><main>{columns}</main></body></html>"


def _without_caption(figure: str) -> str:
    return re.sub(r"<figcaption.*?</figcaption>", "", figure, flags=re.DOTALL)


if __name__ == "__main__":
    main()
