"""The models behind the loopback service: each reads the messages and decides."""

from __future__ import annotations

import json
from typing import Any

from loopback_model import Answer

Messages = list[dict[str, Any]]


def results(messages: Messages) -> list[tuple[str, dict[str, Any], str]]:
    """Return name, arguments and result of each tool call so far."""
    asked = {
        call["id"]: (
            call["function"]["name"],
            json.loads(call["function"]["arguments"]),
        )
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    return [
        (*asked[message["tool_call_id"]], message["content"])
        for message in messages
        if message["role"] == "tool"
    ]


def collector(messages: Messages) -> Answer:
    """Dun politely: look each customer up once, then write, unless told not to."""
    invoices = json.loads(messages[1]["content"].split("\n", 1)[1])
    done = results(messages)
    customers = {
        arguments["customer_id"]: json.loads(result)
        for name, arguments, result in done
        if name == "lookup_customer"
    }
    reminded = {
        arguments["invoice"] for name, arguments, _ in done if name == "send_reminder"
    }
    for invoice in invoices:
        customer = customers.get(invoice["customer_id"])
        if customer is None:
            wanted = {"customer_id": invoice["customer_id"]}
            return Answer(calls=[("lookup_customer", wanted)])
        if invoice["invoice"] in reminded or "do not remind" in customer["note"]:
            continue
        return Answer(calls=[("send_reminder", _reminder(invoice, customer))])
    skipped = [i["invoice"] for i in invoices if i["invoice"] not in reminded]
    return Answer(f"Sent {len(reminded)} reminders; left out: {', '.join(skipped)}.")


def _reminder(invoice: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    body = (
        f"Dear {customer['contact']},\n\n"
        f"invoice {invoice['invoice']} over {invoice['amount']} {invoice['currency']} "
        f"was due on {invoice['due_date']}, {invoice['days_overdue']} days ago. "
        "Please let us know when we may expect your payment."
    )
    if "short" in customer["note"]:
        body = f"Invoice {invoice['invoice']}: {invoice['amount']} is still open."
    return {
        "invoice": invoice["invoice"],
        "to": customer["email"],
        "subject": f"Payment reminder for {invoice['invoice']}",
        "body": body,
    }


def travel_agent(messages: Messages) -> Answer:
    """Book everything at once, then say what was booked."""
    done = results(messages)
    if not done:
        wanted = ("train to Lyon", "hotel in Lyon", "return train")
        return Answer(calls=[("reserve", {"item": item}) for item in wanted])
    return Answer("Booked: " + "; ".join(result for _, _, result in done) + ".")


def explainer(messages: Messages) -> Answer:
    """Explain something at some length."""
    topic = messages[-1]["content"]
    return Answer(
        f"{topic} A write that was only handed to the operating system survives the "
        "death of the program, but not the loss of power. A write that was synced "
        "survives both. So a program that must not act twice writes down what it is "
        "about to do, syncs, and only then does it."
    )


ORDERS = ("A-1", "A-2", "A-3", "A-4")


def refunder(messages: Messages) -> Answer:
    """Refund all orders at once; check what is in doubt, repeat what never began."""
    state: dict[str, str] = {}
    for name, arguments, result in results(messages):
        if name == "find_refund":
            paid = result.endswith("True")
            state[arguments["order"]] = "refunded" if paid else "TOOL_NOT_STARTED"
        else:
            state[arguments["order"]] = result.split(":")[0].split(" ")[0]
    calls = []
    for order in ORDERS:
        known = state.get(order, "TOOL_NOT_STARTED")
        if known != "refunded":
            tool = "refund" if known == "TOOL_NOT_STARTED" else "find_refund"
            calls.append((tool, {"order": order}))
    if calls:
        return Answer(calls=calls)
    return Answer("Refunded, each once: " + ", ".join(ORDERS) + ".")
