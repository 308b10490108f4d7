"""Sources of rows in parts, and lazy collections of other libraries as plain X."""

import decimal
import importlib
import json
import sys

import numpy as np
import pandas as pd
import pytest

from onnxtrain import OrtGradientClassifier, OrtGradientRegressor
from onnxtrain.errors import ArgumentTypeError, DataError, DependencyError, FileError, ParameterError
from onnxtrain.rows import Parts, from_dask, from_files, from_parquet, from_zarr, lazy, reading

N = 500
_rng = np.random.RandomState(0)
X = _rng.randn(N, 3).astype(np.float32)
y = (X @ [1.0, -2.0, 0.5]).astype(np.float32)
w = 1.0 + np.arange(N) % 3
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
TABLE = FRAME.assign(y=y, w=w, name=np.where(y > 0, "up", "down"))


@pytest.fixture
def parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    TABLE.to_parquet(path, row_group_size=60, index=False)
    return path


def of_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    TABLE.to_parquet(path, row_group_size=60, index=False)
    return from_parquet(path, label="y", columns=["a", "b", "c"], weight="w")


def of_partitioned_parquet(tmp_path):
    """Folders by a column, which is in their names alone; files in several row groups."""
    ds = pytest.importorskip("pyarrow.dataset")
    pa = pytest.importorskip("pyarrow")
    table = pa.Table.from_pandas(TABLE.assign(part=np.arange(N) // 200), preserve_index=False)
    ds.write_dataset(
        table,
        tmp_path / "rows",
        format="parquet",
        partitioning=["part"],
        partitioning_flavor="hive",
        max_rows_per_group=70,
    )
    return from_parquet(tmp_path / "rows", label="y", columns=["a", "b", "c"], weight="w")


def of_large_row_groups(tmp_path):
    """Row groups that are cut."""
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    TABLE.to_parquet(path, row_group_size=300, index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PART_BYTES", 3000)
        source = from_parquet([path], label="y", columns=["a", "b", "c"], weight="w")
    assert len(source) > 4
    return source


def of_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    arrays = []
    for name, array in (("X", X), ("y", y), ("w", w)):
        made = zarr.create_array(
            str(tmp_path / name), shape=array.shape, chunks=(60, *array.shape[1:]), dtype=array.dtype
        )
        made[...] = array
        arrays.append(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PART_BYTES", 100)
        source = from_zarr(str(tmp_path / "X"), arrays[1], weight=w)
    assert (len(source), source.n_rows(8)) == (9, 20)
    return source


def of_dask_arrays(tmp_path):
    da = pytest.importorskip("dask.array")
    return from_dask(*(da.from_array(a, chunks=(60, 2)[: a.ndim]) for a in (X, y)), weight=da.from_array(w, chunks=60))


def of_dask_frames(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    table = dd.from_pandas(TABLE, npartitions=6)
    return from_dask(table[["a", "b", "c"]], table["y"], weight=table["w"])


def of_dask_frame_and_arrays(tmp_path):
    """Arrays get the partitions of the frame."""
    dd, da = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask.array")
    return from_dask(dd.from_pandas(FRAME, npartitions=6), da.from_array(y, chunks=70), weight=da.from_array(w))


def of_files(tmp_path):
    for i, rows in enumerate(np.array_split(np.arange(N), 7)):
        np.savez(tmp_path / f"{i}.npz", X=X[rows], y=y[rows], w=w[rows])

    def read(path):
        with np.load(path) as file:
            return file["X"], file["y"], file["w"]

    return from_files(sorted(tmp_path.glob("*.npz")), read)


SOURCES = [
    of_parquet,
    of_partitioned_parquet,
    of_large_row_groups,
    of_zarr,
    of_dask_arrays,
    of_dask_frames,
    of_dask_frame_and_arrays,
    of_files,
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of zarr's and dask's own
@pytest.mark.parametrize("make", SOURCES)
def test_a_source_has_all_rows_in_order(make, tmp_path):
    parts = Parts(make(tmp_path))
    found = [parts.read(i) for i in range(len(parts))]
    assert len(found) > 4
    assert [parts.n_rows(i) for i in range(len(parts))] == [len(part.y) for part in found]
    for expected, arrays in zip((X, y, w), zip(*found, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate([np.asarray(a) for a in arrays]), expected)
    again = parts.read(2)
    np.testing.assert_array_equal(np.asarray(again.X), np.asarray(found[2].X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("make", SOURCES)
def test_a_fit_from_a_source_is_that_of_memory(make, tmp_path):
    named = make not in (of_zarr, of_dask_arrays, of_files)
    rows = FRAME if named else X
    a, b = (OrtGradientRegressor(max_iter=2, random_state=0) for _ in range(2))
    source = make(tmp_path)
    a.fit(rows, y, w), b.fit(Parts(source, open_parts=len(source)))
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.predict(rows), b.predict(source))
    assert hasattr(b, "feature_names_in_") == named


def test_a_file_out_of_reach_is_not_said_to_be_damaged():
    far = str(reading.unreadable("s3://bucket/rows.parquet", OSError("Could not resolve host.")))
    assert "cannot be read: Could not resolve host. Check the network, the address and the credentials" in far
    assert "cannot be read: cut. Write it again." in str(reading.unreadable("rows.parquet", OSError("cut")))


def test_the_index_of_a_frame_is_no_feature(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "some.parquet"
    few = TABLE[["a", "b", "y"]].assign(c=pd.array([1, None] * (N // 2), dtype="Int64"))
    for table in (few[few.a > 0], few.set_index("b"), few.drop(columns="c").sort_values("y")):
        table.to_parquet(path)
        rows, _ = (source := from_parquet(path, label="y")).read(0)
        assert list(source.columns) == list(table.columns.drop("y")) == list(rows.columns)
        assert rows.dtypes.to_dict() == table.drop(columns="y").dtypes.to_dict()


@pytest.mark.filterwarnings("ignore::UserWarning:zarr")  # the type has no specification yet
def test_texts_of_zarr(tmp_path):
    """zarr returns them in numpy's own type, which scikit-learn's accuracy does not take."""
    zarr = pytest.importorskip("zarr")
    names = zarr.create_array(str(tmp_path / "names"), shape=N, chunks=60, dtype="string")
    names[...] = TABLE["name"].to_numpy(str)
    expected = OrtGradientClassifier(max_iter=1, random_state=0).fit(X, TABLE["name"])
    for given in ((X, names), (X, names[...]), (from_zarr(X, names),)):
        found = OrtGradientClassifier(max_iter=1, random_state=0).fit(*given)
        assert found.predict(X).tolist() == expected.predict(X).tolist()
        assert found.score(*given) == expected.score(X, TABLE["name"])


def test_labels_of_parquet(parquet):
    texts = from_parquet(parquet, label="name", columns=["a", "b", "c"])
    assert OrtGradientClassifier(max_iter=1).fit(texts).classes_.tolist() == ["down", "up"]
    both = from_parquet(parquet, label=["y", "w"], columns=["a", "b", "c"])
    model = OrtGradientRegressor(max_iter=1).fit(both)
    assert model.predict(from_parquet(parquet, columns=["a", "b", "c"])).shape == (N, 2)
    assert from_parquet(parquet, label="y", weight="w").columns == ("a", "b", "c", "name")
    with pytest.raises(DataError, match=r"no column 'a, b'. Pass them as a list: \['a', 'b'\]"):
        from_parquet(parquet, label="y", columns="a, b")
    with pytest.raises(DataError, match="no column 'nam'. Did you mean 'name'"):
        from_parquet(parquet, label="nam")


def test_sources_refuse_what_does_not_fit(tmp_path):
    with pytest.raises(DataError, match="X has 500 rows, but y has 3"):
        from_zarr(X, y[:3])
    with pytest.raises(DataError, match="n_rows has 1 entries, but there are 2 files"):
        from_files(["a", "b"], np.load, n_rows=[3])
    da = pytest.importorskip("dask.array")
    with pytest.raises(DataError, match="X has 500 rows, but y has 499"):
        from_dask(da.from_array(X, chunks=(60, 3)), da.from_array(y[1:], chunks=60))
    for none, kind in ((da.from_array(X).sum(), "Array"), (importlib.import_module("dask").delayed(X), "Delayed")):
        with pytest.raises(ArgumentTypeError, match=f"X must be a dask array or frame, got {kind}"):
            from_dask(none)
    cut = da.from_array(y, chunks=70)
    known = from_dask(da.from_array(X, chunks=(60, 3)), cut[cut > -np.inf])  # its lengths are not
    assert np.concatenate([known.read(i)[1] for i in range(len(known))]).tolist() == y.tolist()
    dd = pytest.importorskip("dask.dataframe")
    with pytest.raises(DataError, match=r"X and y are partitioned at different rows.*y.to_dask_array\(lengths=True\)"):
        from_dask(dd.from_pandas(FRAME, npartitions=3), dd.from_pandas(pd.Series(y), npartitions=4))
    pytest.importorskip("pyarrow")
    FRAME[:0].to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(DataError, match="There are no rows in"):
        from_parquet(tmp_path / "empty.parquet")


def written(folder, **tables):
    """Write a file for each table; return the folder."""
    for name, table in tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def damaged(folder):
    written(folder, a=TABLE)
    (folder / "b.parquet").write_bytes(b"")
    return folder


def with_other_bytes(folder, at):
    """A file of one row group in which bytes, counted from the end if negative, are others."""
    written(folder, a=TABLE)
    content = bytearray((folder / "a.parquet").read_bytes())
    content[at : at + 200] = b"\xff" * 200
    (folder / "a.parquet").write_bytes(content)
    return folder


def with_entry_of_pandas(folder, entry):
    """A file whose schema has another entry of pandas, beside a sound one."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.Table.from_pandas(B).replace_schema_metadata({b"pandas": entry})
    pq.write_table(table, written(folder, a=A) / "b.parquet")
    return folder


def with_a_column_twice(folder):
    """A file that has a column twice, beside a sound one."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    name = A.columns[0]
    table = pa.Table.from_pandas(B).append_column(name, pa.array(B[name].to_numpy()))
    pq.write_table(table, written(folder, a=A) / "b.parquet")
    return folder


def with_zarr_metadata(folder, **changes):
    """An array of zarr whose metadata are changed."""
    pytest.importorskip("zarr").create_array(str(folder / "X"), shape=(3, 2), dtype="f4")
    path = folder / "X" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder / "X"


def of_a_removed_file(folder):
    source = from_parquet(written(folder, a=A, b=B), label="y")
    (folder / "b.parquet").unlink()
    return source


def of_damaged_chunks(folder):
    source = of_zarr(folder)
    for path in folder.glob("X/c/*/*"):
        path.write_bytes(b"damaged")
    return source


def partitioned(folder):
    (folder / "b=1").mkdir()
    written(folder / "b=1", a=TABLE)
    return folder


def csv(folder):
    TABLE.to_csv(folder / "a.csv")
    return pytest.importorskip("pyarrow.dataset").dataset(folder, format="csv")


def tables(folder):
    pa = pytest.importorskip("pyarrow")
    return pytest.importorskip("pyarrow.dataset").dataset(pa.Table.from_pandas(TABLE))


def group(folder):
    pytest.importorskip("zarr").open_group(str(folder), mode="w")
    return folder


def dataset(folder):
    return pytest.importorskip("pyarrow.dataset").dataset(folder)


def filtered(folder):
    return dataset(folder).filter(pytest.importorskip("pyarrow.dataset").field("a") > 0)


A, B = TABLE[:250], TABLE[250:]
LISTS = A.assign(l=[[1.0, 2.0]] * 250)

#: What is given, the error and its words.
REFUSED = {
    "a feature that the first file lacks": (
        lambda f: from_parquet(written(f, a=A.drop(columns="b"), b=B), label="y"),
        DataError, r"b.parquet' has a column 'b', but other files lack it. Pass the names of the feature columns as columns=",
    ),
    "a column of the files and of their folders": (
        lambda f: from_parquet(partitioned(f), label="y"),
        DataError, "a column has one type in the files and another in the names of their folders.*dataset.dataset",
    ),
    "a feature of another name": (
        lambda f: from_parquet(written(f, a=A, b=B.rename(columns={"b": "bb"})), label="y"),
        DataError, r"b.parquet' has no column 'b', but other files do. Did you mean 'bb'",
    ),
    "a label of another name": (
        lambda f: from_parquet(written(f, a=A, b=B.rename(columns={"y": "Y"})), label="y"),
        DataError, r"b.parquet' has no column 'y', but other files do. Did you mean 'Y'",
    ),
    "a type that does not fit the dataset": (
        lambda f: from_parquet(dataset(written(f, a=A.assign(k=1), b=B.assign(k=1.5))), label="y", columns=["k"]).read(1),
        DataError, r"b.parquet': Float value 1.5.*The columns must have the types of the dataset. Write all files with the same types, or",
    ),
    "types that do not go together": (
        lambda f: from_parquet(written(f, a=A.assign(k="1"), b=B.assign(k=2)), label="y", columns=["k"]),
        DataError, r"The column 'k' has incompatible types in the files.*Write it with the same type, or leave it out",
    ),
    "integers too large for floats": (
        lambda f: from_parquet(written(f, a=A.assign(k=2**60 + 1), b=B.assign(k=1.5)), label="y", columns=["k"]).read(0),
        DataError, r"a.parquet': Integer value 1152921504606846977 not in range.*Write all files with the same types",
    ),
    "a dataset with a filter": (
        lambda f: from_parquet(filtered(written(f, a=A)), label="y"),
        DataError, r"cannot be read by row groups: .*Write its rows to a file, pyarrow.dataset.write_dataset\(",
    ),
    "a dataset of csv": (lambda f: from_parquet(csv(f), label="y"), DataError, "expects a parquet dataset, got csv, without row"),
    "a dataset in memory": (lambda f: from_parquet(tables(f), label="y"), DataError, "expects a parquet dataset, got tables in memory"),
    "lists as labels": (
        lambda f: from_parquet(written(f, a=LISTS), label="l", columns=["a"]), DataError, "The column 'l' must have one value per row, but is of type list<",
    ),
    "a group of zarr": (lambda f: from_zarr(group(f), y), FileError, "no zarr array .*The path of an array in a group ends"),
    "a file of no bytes": (lambda f: from_parquet(damaged(f)), DataError, "b.parquet.*Leave the file out, or write"),
    "damaged values": (
        lambda f: from_parquet(with_other_bytes(f, 4), label="y").read(0),
        DataError, r"a.parquet' cannot be read: .*Write it again\. Every epoch reads all files again",
    ),
    "an entry of pandas that is no JSON": (
        lambda f: from_parquet(with_entry_of_pandas(f, b"{"), label="y"), DataError, "cannot be read: Expecting property name",
    ),
    "an entry of pandas that is a list": (
        lambda f: from_parquet(with_entry_of_pandas(f, b"[1]"), label="y"),
        DataError, r"cannot be read: the entry of pandas in the schema is \[1\]\. Write it again",
    ),
    "a column twice in one file": (
        lambda f: from_parquet(with_a_column_twice(f), label="y", columns=[A.columns[0]]),
        DataError, "b.parquet' has several columns 'a'. Write it with one column per name",
    ),
    "codecs that zarr does not read": (
        lambda f: from_zarr(with_zarr_metadata(f, codecs=[[]])), DataError, "X' cannot be read: .*Write it again",
    ),
    "a file that is gone": (
        lambda f: of_a_removed_file(f).read(1), FileError, r"There is no file .*b.parquet' any more. Every epoch reads all",
    ),
    "damaged chunks": (lambda f: of_damaged_chunks(f).read(1), DataError, r"rows 60 to 120 of .* cannot be read: .*Write it again"),
    "names of files read": (
        lambda f: Parts(from_files(["a.csv"], lambda path: (path, path))).read(0),
        DataError, r"read\(0\) must return arrays or frames, got 'a.csv'",
    ),
    "a folder without files": (lambda f: from_parquet(f, label="y"), DataError, "There are no files in"),
    "no paths": (lambda f: from_parquet([], label="y"), DataError, r"There are no files in \[\]"),
    "no features": (
        lambda f: from_parquet(written(f, a=A[["y"]]), label="y"), DataError, "no features. Their only columns are y",
    ),
    "a column given twice": (
        lambda f: from_parquet(written(f, a=A), label="y", columns=["a", "a"]), DataError, "columns= contains a column twice",
    ),
    "the label as a feature": (
        lambda f: from_parquet(written(f, a=A), label="y", columns=["a", "y"]), DataError, "'y' is the label and also in col",
    ),
    "lists": (
        lambda f: from_parquet(written(f, a=LISTS), label="y"), DataError, "The column 'l' must have one value per row, but is of type list<",
    ),
    "a path in place of paths": (
        lambda f: from_files("a.csv", np.load), ArgumentTypeError, "expects a sequence of files and a function.*'a.csv'",
    ),
    "no function": (lambda f: from_files(["a.csv"], "read"), ArgumentTypeError, "a function that reads one, got"),
    "a dictionary read": (
        lambda f: from_files(["a"], lambda path: {"X": X, "y": y}).n_rows(0),
        DataError, r"got a dict with X, y. Return found\['X'\], found\['y'\]",
    ),
    "lengths of other files": (
        lambda f: from_files(["a"], np.load, n_rows=[1, 2]), DataError, "has 2 entries, but there are 1 files. Pass one number",
    ),
    "one length of all": (lambda f: from_files(["a"], np.load, n_rows=80), DataError, "is 80, but there are 1 files. Pass one"),
    "a number of classes": (
        lambda f: Parts(from_files([1], lambda i: (X, y)), classes=3), ParameterError, "must list all labels of y, got 3. Pass",
    ),
    "nothing read": (lambda f: from_files([7], lambda i: None).n_rows(0), DataError, r"read\(7\) must return \(X, y\)"),
    "a list for zarr": (lambda f: from_zarr([[1.0]], y), ArgumentTypeError, "X must be an array or the path of one, got"),
    "a list of labels": (lambda f: from_zarr(X, [1.0]), ArgumentTypeError, "y must be an array or the path of one, got"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_cause_and_remedy(name, tmp_path):
    pytest.importorskip("pyarrow")
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call(tmp_path)


def test_rows_in_memory_are_not_for_from_dask():
    pytest.importorskip("dask")
    for given in ((X, y), ([1.0], None)):
        with pytest.raises(ArgumentTypeError, match="X must be a dask array or frame, got"):
            from_dask(*given)


@pytest.mark.parametrize("n_bytes", [2**25, 3000], ids=["whole", "cut"])
def test_a_dataset_says_what_a_file_without_a_column_means(n_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PART_BYTES", n_bytes)
    folder = written(tmp_path, a=A, b=B.drop(columns="b"))
    parts = from_parquet(dataset(folder), label="y", columns=["a", "b"])
    assert parts.read(len(parts) - 1)[0]["b"].isna().all()


#: Values of a column in two files, and the type that holds them all.
TYPES = {
    "integers, floats": (1, 1.5, "float64"),
    "integers": (np.int32(1), 2**40, "int64"),
    "floats": (np.float32(0.5), 0.1, "float64"),
    "missing, texts": (None, "up", None),
    "categories, texts": (pd.Categorical(["down"] * 250), "up", "category"),
}


@pytest.mark.parametrize("n_bytes", [2**25, 3000], ids=["whole", "cut"])
@pytest.mark.parametrize("name", TYPES)
def test_the_types_of_columns_hold_the_values_of_all_files(name, n_bytes, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(reading, "PART_BYTES", n_bytes)
    first, last, dtype = TYPES[name]
    parts = from_parquet(written(tmp_path, a=A.assign(k=first), b=B.assign(k=last)), label="y", columns=["k"])
    found = [parts.read(i)[0]["k"] for i in range(len(parts))]
    assert found[-1].iloc[-1] == last
    assert dtype is None or {str(column.dtype) for column in found} == {dtype}


@pytest.mark.parametrize("n_bytes", [2**25, 3000], ids=["whole", "cut"])
def test_the_types_of_columns_are_those_of_the_schema_of_a_dataset(n_bytes, tmp_path, monkeypatch):
    ds, pa = pytest.importorskip("pyarrow.dataset"), pytest.importorskip("pyarrow")
    monkeypatch.setattr(reading, "PART_BYTES", n_bytes)
    schema = pa.schema([("k", pa.float64()), ("y", pa.float64())])
    parts = from_parquet(ds.dataset(written(tmp_path, a=A.assign(k=np.int32(7))), schema=schema), label="y")
    assert {str(parts.read(i)[0]["k"].dtype) for i in range(len(parts))} == {"float64"}


def test_decimals_are_floats(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    money = pa.array([decimal.Decimal(f"{value:.2f}") for value in X[:, 0]], pa.decimal128(10, 2))
    pq.write_table(pa.table({"a": money, "b": X[:, 1], "y": money, "w": money}), tmp_path / "rows.parquet")
    rows, labels, weight = from_parquet(tmp_path / "rows.parquet", label="y", weight="w").read(0)
    expected = np.array([float(f"{value:.2f}") for value in X[:, 0]])
    for found in (rows["a"], labels, weight):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize(
    "library, call",
    [
        ("pyarrow", lambda: from_parquet("rows.parquet")),
        ("zarr", lambda: from_zarr("rows.zarr")),
        ("dask", lambda: from_dask(X)),
    ],
)
def test_a_missing_library_is_named(library, call, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        DependencyError, match=f"needs {library} to read these rows, but it is not installed: pip install {library}"
    ):
        call()


def test_nothing_optional_is_imported():
    import subprocess

    code = "import onnxtrain.rows, onnxtrain.estimators, sys; print(sorted({'pyarrow', 'zarr', 'dask', 'polars'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    plain = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sklearn.pipeline, pandas, sys; print(sorted({'pyarrow', 'zarr', 'dask', 'polars'} & set(sys.modules)))",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert found.strip() in ("[]", plain.strip())


# -------------------------------------------------------- lazy collections


def _zarr_array(array):
    zarr = importlib.import_module("zarr")
    made = zarr.create_array({}, shape=array.shape, chunks=(60, *array.shape[1:]), dtype=array.dtype)
    made[...] = array
    return made


def _without_lengths(array):
    dask_array = importlib.import_module("dask.array").from_array(array, chunks=(60, 3)[: array.ndim])
    return dask_array[dask_array[:, 0] > -np.inf] if array.ndim > 1 else dask_array


#: The library, the collection of X and of y, and whether X has names.
LAZY = {
    "dask array": ("dask.array", lambda m: (m.from_array(X, chunks=(60, 2)), m.from_array(y, chunks=60)), False),
    "dask array of unknown length": ("dask.array", lambda m: (_without_lengths(X), y), False),
    "dask frame": ("dask.dataframe", lambda m: (m.from_pandas(FRAME, npartitions=4), m.from_pandas(TABLE.y, npartitions=4)), True),
    "zarr": ("zarr", lambda m: (_zarr_array(X), _zarr_array(y)), False),
    "polars LazyFrame": ("polars", lambda m: (m.DataFrame(X, schema=["a", "b", "c"]).lazy(), y), True),
    "pyarrow table": ("pyarrow", lambda m: (m.Table.from_pandas(FRAME), m.array(y)), True),
    "pyarrow dataset": ("pyarrow.dataset", lambda m: (m.dataset(importlib.import_module("pyarrow").Table.from_pandas(FRAME)), y), True),
}  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:dask", "ignore::DeprecationWarning:zarr")


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.filterwarnings("ignore:The validation set")
def test_small_lazy_collections_are_read(name):
    library, make, named = LAZY[name]
    rows, target = make(pytest.importorskip(library))
    a, b = (OrtGradientRegressor(max_iter=2, random_state=0) for _ in range(2))
    a.fit(FRAME if named else X, y), b.fit(rows, target)
    np.testing.assert_array_equal(a.coef_, b.coef_)
    expected = a.predict(FRAME if named else X)
    np.testing.assert_array_equal(b.predict(rows), expected)
    np.testing.assert_allclose(b.score(rows, target), a.score(FRAME if named else X, y))
    np.testing.assert_array_equal(b.losses(rows, target), a.losses(FRAME if named else X, y))
    assert getattr(b, "feature_names_in_", np.array([])).tolist() == (["a", "b", "c"] if named else [])
    b.partial_fit(rows, target)
    b.fit(FRAME if named else X, y, X_val=rows, y_val=target)


@pytest.mark.parametrize("name", LAZY)
def test_large_lazy_collections_name_the_remedy(name, monkeypatch):
    library, make, _ = LAZY[name]
    rows, target = make(pytest.importorskip(library))
    size = X.nbytes
    monkeypatch.setattr(lazy, "memory_at_hand", lambda: 3.5 * size)
    with pytest.raises(DataError, match="more than a quarter of the memory.*onnxtrain.rows.*onnxtrain.dask"):
        OrtGradientRegressor().fit(rows, target)
    monkeypatch.setattr(lazy, "memory_at_hand", lambda: 8.0 * size)
    OrtGradientRegressor(max_iter=1).fit(rows, target)


def test_a_frame_of_dask_is_as_large_as_its_partitions_together(monkeypatch):
    rows = pytest.importorskip("dask.dataframe").from_pandas(FRAME, npartitions=4)
    start = rows.divisions[1]  # the first row of the second partition
    monkeypatch.setattr(lazy, "memory_at_hand", lambda: 2.0 * X.nbytes)
    with pytest.raises(DataError, match="X is a dask frame of .*more than a quarter"):
        OrtGradientRegressor().fit(rows.map_partitions(lambda part: part[part.index >= start]), y[start:])


def test_the_memory_is_that_of_machine_group_and_process(tmp_path, monkeypatch):
    assert 0 < lazy.memory_at_hand() < 1e15
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "a" / "memory.max").write_text("123456\n")
    (group / "memory.max").write_text("max\n")
    listed = tmp_path / "cgroup"
    listed.write_text("0::/a/b\n3:cpu:/x\n")
    assert min(lazy._of_groups(str(tmp_path), str(listed))) == 123456
    (tmp_path / "memory" / "c").mkdir(parents=True)
    (tmp_path / "memory" / "c" / "memory.limit_in_bytes").write_text("77\n")
    listed.write_text("5:memory:/c\n")
    assert min(lazy._of_groups(str(tmp_path), str(listed))) == 77
    assert list(lazy._of_groups(str(tmp_path), str(tmp_path / "none"))) == []
    resource = pytest.importorskip("resource", reason="Windows has no limits of this kind")
    monkeypatch.setattr(
        resource,
        "getrlimit",
        lambda which: (55, 55) if which == resource.RLIMIT_DATA else (resource.RLIM_INFINITY,) * 2,
    )
    assert lazy.memory_at_hand() == 55
