"""Types of columns in Arrow and in Spark, by their names in Spark SQL."""

from __future__ import annotations

from typing import Any


def arrow_type(kind: str) -> Any:
    """Arrow's type for a type name of Spark SQL. Raises KeyError for a name that no table of the landing uses."""
    import pyarrow as pa

    number = pa.int64()
    simple = {
        "string": pa.string(), "int": pa.int32(), "bigint": number, "double": pa.float64(), "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"), "binary": pa.binary(),
    }  # fmt: skip
    match kind:
        case "map<string,string>":
            return pa.map_(pa.string(), pa.string())
        case "map<string,int>":
            return pa.map_(pa.string(), pa.int32())
        case "array<string>":
            return pa.list_(pa.string())
        case "array<bigint>":
            return pa.list_(number)
        case "array<int>":
            return pa.list_(pa.int32())
        case "array<struct<first:bigint,last:bigint>>":
            return pa.list_(pa.struct([("first", number), ("last", number)]))
        case "array<struct<ledger:bigint,first:bigint,last:bigint>>":
            return pa.list_(pa.struct([("ledger", number), ("first", number), ("last", number)]))
        case _:
            return simple[kind]


def spark_type(kind: str) -> Any:
    """Spark's type for a type name of Spark SQL. Raises KeyError for a name that no table of the landing uses."""
    from pyspark.sql import types as t

    number = t.LongType()
    simple = {
        "string": t.StringType(), "int": t.IntegerType(), "bigint": number, "double": t.DoubleType(),
        "boolean": t.BooleanType(), "timestamp": t.TimestampType(), "binary": t.BinaryType(),
    }  # fmt: skip
    match kind:
        case "map<string,string>":
            return t.MapType(t.StringType(), t.StringType())
        case "map<string,int>":
            return t.MapType(t.StringType(), t.IntegerType())
        case "array<string>":
            return t.ArrayType(t.StringType())
        case "array<bigint>":
            return t.ArrayType(number)
        case "array<int>":
            return t.ArrayType(t.IntegerType())
        case "array<struct<first:bigint,last:bigint>>":
            return t.ArrayType(t.StructType([t.StructField(name, number) for name in ("first", "last")]))
        case "array<struct<ledger:bigint,first:bigint,last:bigint>>":
            return t.ArrayType(t.StructType([t.StructField(name, number) for name in ("ledger", "first", "last")]))
        case _:
            return simple[kind]
