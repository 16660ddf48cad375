"""Where Spark finds `format("txlog")`: it imports every top-level package named pyspark_*.

Spark does not catch errors of these imports: one package that raises makes all sources vanish, with
DATA_SOURCE_NOT_FOUND as the only sign. Nothing may raise here, and nothing but the import may
happen. `txlog doctor` reads `IMPORT_ERROR`.
"""

IMPORT_ERROR: Exception | None = None
"""Why `DefaultSource` is absent; None if it is present."""

try:
    from spark_plugin.datasource import TxlogDataSource as DefaultSource  # noqa: F401
except Exception as error:
    IMPORT_ERROR = error
