"""The part of `check` about what is promised: the guarantee, and whether this cluster lets us keep it.

Transactions are tried under a name that begins as ours does and that no replica uses: with ours a replica that runs
here would be shut out.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from worker.commands.check.report import DeliveryFacts, Report
from worker.core.failures import Stop
from worker.kafka.client.transactional_id import TransactionalId, resolve_transactional_id
from worker.kafka.cluster.access import Finding, missing, needed_for_transactions
from worker.kafka.cluster.examination import Topics
from worker.kafka.transactions.kafka_transactions import try_transactions
from worker.settings import DeliverySettings, KafkaSettings


class WantedTransactions(NamedTuple):
    """The transactions that exactly once opens on a cluster."""

    name: TransactionalId
    timeout_ms: int


def wanted_transactions(kafka: KafkaSettings, delivery: DeliverySettings | None) -> WantedTransactions | None:
    """None: these settings open no transactions, or do not say."""
    if delivery is None or delivery.guarantee == "at_least_once":
        return None
    name = resolve_transactional_id(delivery.transactional_id, kafka.group_id, kafka.group_instance_id)
    return WantedTransactions(name, delivery.transaction_timeout_ms)


def delivery_facts(delivery: DeliverySettings, wanted: WantedTransactions | None) -> DeliveryFacts:
    facts = DeliveryFacts(delivery.guarantee, delivery.order, delivery.commit_interval_ms)
    if wanted is None:
        return facts
    name = wanted.name
    return replace(
        facts,
        transactional_id=name.text if name.is_stable else f"{name.family}*",
        is_stable=name.is_stable,
        transaction_timeout_ms=wanted.timeout_ms,
    )


def can_transact(
    kafka: KafkaSettings,
    topics: Topics,
    wanted: WantedTransactions,
    report: Report,
    logger: logging.Logger,
    timeout: float,
) -> bool | None:
    """Whether the broker prepares transactions; None where that cannot be said without the name itself."""
    another = wanted.name.relative()
    refused = missing(kafka, needed_for_transactions(another), "write")
    try:
        try_transactions(kafka, topics, another, wanted.timeout_ms, logger, timeout)
    except Stop as stop:
        if str(stop) != refused.text:
            report.add(stop)
            return False
        if not wanted.name.is_stable:
            report.refuse([refused], stop.exit_code)
            return False
        report.warnings.append(_untried(kafka, wanted.name))
        return None
    return True


def _untried(kafka: KafkaSettings, name: TransactionalId) -> Finding:
    """An ACL for this very name may exist; it was not tried."""
    right = needed_for_transactions(name)
    names = f"names that begin with {right.name}" if right.is_prefix else f"the name {right.name}"
    return Finding(
        f"{right.variable}: whether this client may use {names} was not tried, as it would shut out a replica that "
        f"runs; if a worker is refused, grant it {right.operation.upper()} on transactional ids",
        missing(kafka, right, "write").command,
    )
