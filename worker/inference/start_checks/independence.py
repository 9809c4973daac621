"""What the looks at a model's rows found, in words for the operator. `row_independence` takes them."""

from __future__ import annotations

from typing import NamedTuple

KINDS = (
    "Models do that whose first axis is the time and not the batch (batch_first=True), which find objects in the first "
    "image alone (export them without NMS inside), which compare all rows with all (leave such an output out), which "
    "sort their rows or divide by how many they are, or which were exported in training mode"
)
SHARED_SCALE = (
    "The model quantises dynamically ({}): by one scale for all rows of a batch, so that large numbers in one take the "
    "others' digits; quantise statically instead"
)
CURE = "WORKER_BATCHING__MAX_BATCH_SIZE=1 runs each row alone"
UNSTABLE = (
    "the model answers the same rows differently each time ({}), and has no operator that draws random numbers: it was "
    "exported in training mode. Export it in evaluation mode (model.eval(), or training_mode=0 of its "
    "BatchNormalization and Dropout)"
)
UNFOUND = (
    "the model has NonMaxSuppression inside, and found the same, perhaps nothing, in all rows tried ({}; {}), so it is "
    "not known whether each image of a batch is answered: many such exports fill the first one alone, and the others "
    "are answered with nothing. Name a file of images with unlike objects in WORKER_MODEL__WARM_UP_EXAMPLE, or export "
    f"the model without NMS inside (ultralytics: nms=False); {CURE}"
)


class Independence(NamedTuple):
    """What was found. `why` rows that share a batch may change one another's answers, with the cure; None: no sign.

    `unseen`: outputs that were the same for all quiet rows, which proves nothing about them. `tried`: how many rows
    that were, the same ones each time. `is_whole`: of a slow model there is time for the first of them alone.
    """

    why: str | None = None
    unseen: tuple[str, ...] = ()
    tried: int = 0
    is_whole: bool = True

    @property
    def doubt(self) -> str | None:
        """What proved nothing or was not tried, in a sentence; None where there is nothing, or `why` is known."""
        if self.why is not None:
            return None
        if self.unseen:
            return (
                f"{', '.join(self.unseen)}: not known whether rows that share a batch change one another's answers, as "
                f"of the rows tried ({self.tried}) none got another answer; name a file of rows whose answers differ "
                "in WORKER_MODEL__WARM_UP_EXAMPLE"
            )
        if not self.is_whole:
            return (
                f"{self.tried} made-up rows were tried, and larger and smaller ones were not, as the model takes long: "
                f"nothing showed that rows that share a batch change one another's answers"
            )
        return None
