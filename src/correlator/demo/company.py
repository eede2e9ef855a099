"""The company of the demo: a shop, its data, and the day on which somebody deployed too quickly.

Landing files and the shop's database are loaded by Airflow and two small loaders, clicks are worked up by Spark every
hour, dbt makes staging models and marts in the morning, and dashboards are refreshed before people come to work. Great
Expectations looks at what matters. Then a change to `stg_orders` keeps only the orders of one country.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from correlator.demo.faults import Fault, FaultKind, Scaled, Truth
from correlator.demo.parts import (
    DAY,
    HOUR,
    Check,
    Company,
    Field,
    Input,
    Job,
    Name,
    Operation,
    Pipeline,
    Role,
    Table,
    Test,
    TestKind,
    Tool,
    Voice,
)
from correlator.demo.simulation import Noise, Simulation
from correlator.demo.telling import Quirks, Sent
from correlator.demo.testing import likely_tests, new_check
from correlator.demo.world import usual_contents

HISTORY_DAYS: Final = 21
_DEPLOY_HOUR: Final = 2.9
_MORNING_HOURS: Final = 6.0
"""Hours of the shop's day, after its own midnight, until somebody deploys and until the dashboards are looked at."""
_WAREHOUSE: Final = "postgres://warehouse.shop.example:5432"
_LAKE: Final = "s3://shop-lake"
_METASTORE: Final = "hive://metastore.shop.example:9083"
_AIRFLOW, _DBT, _SPARK, _LOADERS = "airflow-prod", "dbt-prod", "spark-prod", "loaders"
_LAYERS: Final = {"raw": 0, "staging": 1, "intermediate": 2, "marts": 3, "dashboards": 4}

Layer = Literal["raw", "staging", "intermediate", "marts", "dashboards"]


@dataclass(frozen=True)
class _Plan:
    """One job of the shop, in few words."""

    layer: Layer
    table: str
    tool: Tool
    pipeline: str
    owner: str
    columns: str
    """`name:type<source` for each; `+` before a source sums it up, `#` counts it; `2.name` takes it from the third
    input; without a source the column has its own name in the first input, or comes from outside."""
    reads: tuple[str, ...] = ()
    """`table` or `table/role`; the first one drives."""
    rows: float = 0.0
    source: tuple[str, str] = ("", "")
    groups: float = 0.0
    selectivity: float = 1.0
    seconds: float = 180.0
    period: int = DAY


_SHOP_DB, _ERP, _LANDING = "postgres://shopdb.shop.example:5432", "mysql://erp.shop.example:3306", "s3://shop-landing"
_PLANS: Final = (
    _Plan("raw", "raw_orders", Tool.AIRFLOW, "ingest_shop", "checkout",
          "order_id:bigint customer_id:bigint store_id:bigint amount:decimal(18,2) currency:varchar status:varchar "
          "country:varchar created_at:timestamp", rows=48_000, source=(_SHOP_DB, "shop.public.orders")),
    _Plan("raw", "raw_order_lines", Tool.AIRFLOW, "ingest_shop", "checkout",
          "line_id:bigint order_id:bigint product_id:bigint quantity:integer price:double discount:double",
          rows=131_000, source=(_SHOP_DB, "shop.public.order_lines")),
    _Plan("raw", "raw_customers", Tool.AIRFLOW, "ingest_shop", "checkout",
          "customer_id:bigint email:varchar country:varchar segment:varchar signed_up_at:timestamp",
          rows=212_000, source=(_SHOP_DB, "shop.public.customers")),
    _Plan("raw", "raw_payments", Tool.PLAIN, "payments_loader", "finance",
          "payment_id:bigint order_id:bigint amount:decimal(18,2) method:varchar paid_at:timestamp",
          rows=47_000, source=(_LANDING, "psp/settlements")),
    _Plan("raw", "raw_products", Tool.AIRFLOW, "ingest_erp", "supply",
          "product_id:bigint name:varchar category:varchar cost:double supplier_id:bigint",
          rows=9_400, source=(_ERP, "erp.products")),
    _Plan("raw", "raw_stock", Tool.AIRFLOW, "ingest_erp", "supply",
          "stock_id:bigint product_id:bigint store_id:bigint on_hand:integer counted_at:timestamp",
          rows=64_000, source=(_ERP, "erp.stock")),
    _Plan("raw", "raw_stores", Tool.AIRFLOW, "ingest_erp", "supply",
          "store_id:bigint city:varchar country:varchar opened_at:timestamp", rows=310, source=(_ERP, "erp.stores")),
    _Plan("raw", "raw_shipments", Tool.PLAIN, "carrier_feed", "logistics",
          "shipment_id:bigint order_id:bigint carrier:varchar cost:double shipped_at:timestamp",
          rows=39_000, source=(_LANDING, "carriers/shipments")),
    _Plan("raw", "raw_returns", Tool.PLAIN, "returns_feed", "logistics",
          "return_id:bigint order_id:bigint reason:varchar refund:double", rows=3_100,
          source=(_LANDING, "carriers/returns")),
    _Plan("raw", "raw_clicks", Tool.SPARK, "clickstream_raw", "growth",
          "click_id:bigint session_id:varchar customer_id:bigint page:varchar device:varchar duration:double",
          rows=84_000, source=("kafka://broker.shop.example:9092", "web.clicks"), period=HOUR, seconds=55),
    _Plan("raw", "raw_campaigns", Tool.PLAIN, "ads_loader", "growth",
          "campaign_id:bigint channel:varchar spend:double clicks:bigint", rows=640,
          source=(_LANDING, "ads/campaigns")),
    _Plan("staging", "stg_sessions", Tool.SPARK, "clickstream_sessions", "growth",
          "session_id:varchar customer_id:bigint device:varchar duration:double", ("raw_clicks",),
          selectivity=0.21, period=HOUR, seconds=48),
    _Plan("staging", "stg_orders", Tool.DBT, "dbt_morning", "analytics",
          "order_id:bigint customer_id:bigint store_id:bigint amount:decimal(18,2) currency:varchar country:varchar "
          "created_at:timestamp", ("raw_orders",), selectivity=0.97),
    _Plan("staging", "stg_order_lines", Tool.DBT, "dbt_morning", "analytics",
          "line_id:bigint order_id:bigint product_id:bigint quantity:integer price:double discount:double",
          ("raw_order_lines",)),
    _Plan("staging", "stg_customers", Tool.DBT, "dbt_morning", "analytics",
          "customer_id:bigint country:varchar segment:varchar signed_up_at:timestamp", ("raw_customers",)),
    _Plan("staging", "stg_payments", Tool.DBT, "dbt_morning", "analytics",
          "payment_id:bigint order_id:bigint amount:decimal(18,2) method:varchar", ("raw_payments",)),
    _Plan("staging", "stg_products", Tool.DBT, "dbt_morning", "analytics",
          "product_id:bigint name:varchar category:varchar cost:double", ("raw_products",)),
    _Plan("staging", "stg_stock", Tool.DBT, "dbt_morning", "analytics",
          "stock_id:bigint product_id:bigint on_hand:integer city:varchar<1.city", ("raw_stock", "raw_stores/lookup")),
    _Plan("staging", "stg_shipments", Tool.DBT, "dbt_morning", "analytics",
          "shipment_id:bigint order_id:bigint carrier:varchar cost:double shipped_at:timestamp", ("raw_shipments",)),
    _Plan("staging", "stg_returns", Tool.DBT, "dbt_morning", "analytics",
          "return_id:bigint order_id:bigint reason:varchar refund:double", ("raw_returns",)),
    _Plan("intermediate", "int_orders_enriched", Tool.DBT, "dbt_morning", "analytics",
          "order_id:bigint customer_id:bigint store_id:bigint amount:decimal(18,2) country:varchar "
          "created_at:timestamp segment:varchar<1.segment method:varchar<2.method",
          ("stg_orders", "stg_customers/lookup", "stg_payments/lookup")),
    _Plan("intermediate", "int_order_margins", Tool.DBT, "dbt_morning", "analytics",
          "line_id:bigint order_id:bigint product_id:bigint quantity:integer price:double category:varchar<1.category "
          "cost:double<1.cost", ("stg_order_lines", "stg_products/lookup", "stg_orders/filter")),
    _Plan("intermediate", "int_deliveries", Tool.DBT, "dbt_morning", "logistics",
          "shipment_id:bigint order_id:bigint carrier:varchar cost:double shipped_at:timestamp "
          "country:varchar<1.country", ("stg_shipments", "stg_orders/lookup")),
    _Plan("marts", "mart_sales", Tool.DBT, "dbt_morning", "analytics",
          "country:varchar total_amount:decimal(18,2)<+amount orders:bigint<#order_id", ("int_orders_enriched",),
          groups=420),
    _Plan("marts", "mart_customers", Tool.DBT, "dbt_morning", "analytics",
          "customer_id:bigint country:varchar segment:varchar amount:decimal(18,2)<1.amount",
          ("stg_customers", "int_orders_enriched/lookup")),
    _Plan("marts", "mart_margins", Tool.DBT, "dbt_morning", "finance",
          "category:varchar total_price:double<+price total_cost:double<+cost lines:bigint<#line_id",
          ("int_order_margins",), groups=180),
    _Plan("marts", "mart_logistics", Tool.DBT, "dbt_morning", "logistics",
          "carrier:varchar total_cost:double<+cost shipments:bigint<#shipment_id", ("int_deliveries",), groups=36),
    _Plan("marts", "mart_returns", Tool.DBT, "dbt_morning", "logistics",
          "reason:varchar total_refund:double<+refund returns:bigint<#return_id", ("stg_returns",), groups=24),
    _Plan("marts", "mart_stock", Tool.DBT, "dbt_morning", "supply",
          "product_id:bigint on_hand:integer city:varchar category:varchar<1.category",
          ("stg_stock", "stg_products/lookup")),
    _Plan("marts", "mart_engagement", Tool.SPARK, "engagement", "growth",
          "device:varchar total_duration:double<+duration sessions:bigint<#session_id", ("stg_sessions",), groups=60,
          seconds=240),
    _Plan("dashboards", "dash_revenue", Tool.AIRFLOW, "refresh_dashboards", "analytics",
          "country:varchar total_amount:decimal(18,2) orders:bigint", ("mart_sales",)),
    _Plan("dashboards", "dash_board_report", Tool.AIRFLOW, "refresh_dashboards", "finance",
          "country:varchar total_amount:decimal(18,2) total_price:double<1.total_price",
          ("mart_sales", "mart_margins/lookup")),
    _Plan("dashboards", "dash_operations", Tool.AIRFLOW, "refresh_dashboards", "logistics",
          "carrier:varchar total_cost:double shipments:bigint total_refund:double<1.total_refund",
          ("mart_logistics", "mart_returns/lookup")),
    _Plan("dashboards", "dash_marketing", Tool.AIRFLOW, "refresh_dashboards", "growth",
          "device:varchar total_duration:double sessions:bigint spend:double<1.spend",
          ("mart_engagement", "raw_campaigns/lookup")),
)  # fmt: skip

_STARTS: Final = {
    "ingest_shop": 1.0,
    "ingest_erp": 1.25,
    "payments_loader": 1.5,
    "carrier_feed": 1.75,
    "returns_feed": 1.6,
    "ads_loader": 2.0,
    "dbt_morning": 3.0,
    "engagement": 3.5,
    "refresh_dashboards": 4.5,
    "clickstream_raw": 0.05,
    "clickstream_sessions": 0.2,
}
"""Hours into the day, or into the hour, at which each begins."""

_LOOKED_AT: Final[dict[str, tuple[tuple[TestKind, str], ...]]] = {
    "raw_orders": ((TestKind.ROWS, ""), (TestKind.FRESHNESS, "")),
    "raw_payments": ((TestKind.ROWS, ""),),
    "raw_shipments": ((TestKind.COLUMNS, ""), (TestKind.FRESHNESS, "")),
    "raw_clicks": ((TestKind.ROWS, ""),),
    "stg_orders": ((TestKind.UNIQUE, "order_id"), (TestKind.NOT_NULL, "amount")),
    "stg_customers": ((TestKind.UNIQUE, "customer_id"), (TestKind.NOT_NULL, "country")),
    "stg_payments": ((TestKind.NOT_NULL, "amount"),),
    "stg_products": ((TestKind.UNIQUE, "product_id"),),
    "int_orders_enriched": ((TestKind.NOT_NULL, "segment"),),
    "int_deliveries": ((TestKind.NOT_NULL, "carrier"),),
    "mart_sales": ((TestKind.NOT_NULL, "country"), (TestKind.RANGE, "total_amount")),
    "mart_customers": ((TestKind.UNIQUE, "customer_id"),),
    "mart_margins": ((TestKind.NOT_NULL, "category"), (TestKind.RANGE, "total_price")),
    "mart_stock": ((TestKind.ROWS, ""),),
    "dash_revenue": ((TestKind.RANGE, "total_amount"), (TestKind.FRESHNESS, "")),
    "dash_board_report": ((TestKind.RANGE, "total_amount"),),
    "dash_operations": ((TestKind.FRESHNESS, ""),),
    "dash_marketing": ((TestKind.RANGE, "sessions"),),
}


@dataclass(frozen=True)
class ShopHistory:
    """Three weeks as they happened, and the morning that somebody has to explain."""

    history: list[Sent]
    incident: list[Sent]
    truths: list[Truth]


def shop() -> Company:
    jobs = {plan.table: _job(plan) for plan in _PLANS}
    tables = {plan.table: _table(plan) for plan in _PLANS}
    pipelines = {}
    for plan in _PLANS:
        if plan.pipeline not in pipelines:
            pipelines[plan.pipeline] = _pipeline(plan, tuple(p.table for p in _PLANS if p.pipeline == plan.pipeline))
    company = Company(
        tables,
        jobs,
        pipelines,
        {},
        weekdays=(1.0, 0.97, 0.98, 1.0, 1.1, 1.18, 0.86),
        diurnal=0.45,
        flavour={
            "checks_namespace": "great_expectations",
            "airflow": "2.10.4",
            "dbt": "1.9.2",
            "spark": "3.5.4",
            "plain": "2.4.0",
            "project": "shop",
            "catalogue": "yes",
            "warehouse": _WAREHOUSE,
        },
    )
    _add_checks(company)
    return company


def play_shop(seed: int, now: datetime) -> ShopHistory:
    """The shop up to the morning that ended at the last midnight (UTC): it is in the far east.

    Everything hangs on the seed and the day, so that the same demo played twice on one day sends the same events.
    """
    company = shop()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    today = (midnight - timedelta(hours=_MORNING_HOURS)).timestamp()
    fault = Fault(
        FaultKind.CODE_CHANGE,
        "stg_orders",
        today + _DEPLOY_HOUR * HOUR,
        today + 2 * DAY,
        "code",
        (Scaled(0.18),),
    )
    simulation = Simulation(
        company,
        seed=seed,
        begins=today - HISTORY_DAYS * DAY,
        ends=today + _MORNING_HOURS * HOUR,
        faults=[fault],
        noise=Noise(changes=0.06, retries=0.006, reruns=0.004),
        quirks=Quirks(late=0.004, duplicates=0.004, missing_starts=0.004),
    )
    history: list[Sent] = []
    incident: list[Sent] = []
    for sent in simulation.events():
        if sent.at < midnight.timestamp():  # what is late in coming has not come yet
            (history if sent.at < fault.begins else incident).append(sent)
    return ShopHistory(history, incident, simulation.truths)


def _job(plan: _Plan) -> Job:
    inputs = tuple(_input(text) for text in plan.reads)
    return Job(
        key=plan.table,
        tool=plan.tool,
        told_as=_job_name(plan),
        pipeline=plan.pipeline,
        output=plan.table,
        inputs=inputs,
        fields=tuple(_field(text, has_inputs=bool(inputs)) for text in plan.columns.split()),
        owner=f"team:{plan.owner}",
        period=plan.period,
        usual_rows=plan.rows,
        source=None if inputs else Name(*plan.source),
        selectivity=plan.selectivity,
        groups=plan.groups,
        strictness="nulls",
        usual_seconds=plan.seconds,
        retries=0 if plan.tool is Tool.DBT else 2,
        voice=_VOICES[plan.tool],
        repository=f"https://git.shop.example/{plan.owner}/pipelines",
        parameters=(("lookback_days", "1"), ("batch_size", "5000")),
    )


_VOICES: Final = {
    Tool.AIRFLOW: Voice(sql=True, parameters=True, column_lineage=True),
    Tool.DBT: Voice(sql=True, column_lineage=True, nominal_time=False),
    Tool.SPARK: Voice(column_lineage=True, parameters=True, nominal_time=False),
    Tool.PLAIN: Voice(commit=True, parameters=True, versions=True),
}


def _input(text: str) -> Input:
    table, _, role = text.partition("/")
    roles: dict[str, Role] = {"": "driving", "lookup": "lookup", "filter": "filter", "union": "union"}
    return Input(table, roles[role])


def _field(text: str, *, has_inputs: bool) -> Field:
    told, _, source = text.partition("<")
    name, _, kind = told.partition(":")
    if not has_inputs:
        return Field(name, kind)
    operation: Operation = "identity"
    if source.startswith(("+", "#")):
        operation = "sum" if source[0] == "+" else "count"
        source = source[1:]
    index, dot, column = source.rpartition(".")
    return Field(name, kind, 0.0, (int(index) if dot else 0, column or name), operation)


def _job_name(plan: _Plan) -> Name:
    match plan.tool:
        case Tool.AIRFLOW:
            return Name(_AIRFLOW, f"{plan.pipeline}.{plan.table}")
        case Tool.DBT:
            return Name(_DBT, f"model.shop.{plan.table}")
        case Tool.SPARK:
            return Name(_SPARK, f"{plan.pipeline}.execute_insert_into_hadoop_fs_relation_command.{plan.table}")
        case Tool.PLAIN:
            return Name(_LOADERS, plan.pipeline)


def _table(plan: _Plan) -> Table:
    owner, layer = f"team:{plan.owner}", _LAYERS[plan.layer]
    if plan.tool is Tool.SPARK:
        path, table = Name(_LAKE, f"{plan.layer}/{plan.table}"), Name(_METASTORE, f"{plan.layer}.{plan.table}")
        return Table(plan.table, layer, path, table, table, owner)
    name = Name(_WAREHOUSE, f"shop.{plan.layer}.{plan.table}")
    # The loaders leave the port out, as so many do.
    written = replace(name, namespace=_WAREHOUSE.removesuffix(":5432")) if plan.tool is Tool.PLAIN else name
    return Table(plan.table, layer, written, name, None, owner)


def _pipeline(plan: _Plan, jobs: tuple[str, ...]) -> Pipeline:
    names = {
        Tool.AIRFLOW: Name(_AIRFLOW, plan.pipeline),
        Tool.DBT: Name(_DBT, "dbt-run-shop"),
        Tool.SPARK: Name(_SPARK, plan.pipeline),
        Tool.PLAIN: Name(_LOADERS, plan.pipeline),
    }
    offset = _STARTS[plan.pipeline] * HOUR
    mode: Literal["", "structured_logs"] = "structured_logs" if plan.tool is Tool.DBT else ""
    return Pipeline(plan.pipeline, plan.tool, names[plan.tool], jobs, plan.period, offset, mode)


def _add_checks(company: Company) -> None:
    usual = usual_contents(company)
    for table, wanted in _LOOKED_AT.items():
        likely = likely_tests(company, table, usual[table])
        for kind, column in wanted:
            test = next(each for each in likely if each.kind is kind and each.column == column)
            check = _check_for(company, table, test)
            check.tests.append(test)


def _check_for(company: Company, table: str, test: Test) -> Check:
    """The models' own tests run with dbt, everything else is Great Expectations' business."""
    is_dbt = company.producers[table].tool is Tool.DBT and test.kind is not TestKind.FRESHNESS
    manner: Literal["dbt", "schedule"] = "dbt" if is_dbt else "schedule"
    check = company.checks.get(f"{table}:{manner}")
    if check is None:
        check = company.checks[f"{table}:{manner}"] = new_check(company, table, manner, [])
        if check.period == DAY:
            check.offset -= HOUR  # they look soon after
    return check
