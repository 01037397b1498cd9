"""The table of data sets: one line each, read by the command line, the documentation and the tests."""

from vbdrop.data.cifar10 import CIFAR10
from vbdrop.data.dataset import Arrays
from vbdrop.data.digits import digits
from vbdrop.data.mnist import FASHION_MNIST, MNIST
from vbdrop.data.spec import Spec
from vbdrop.data.svhn import SVHN


def _embedded_digits() -> Arrays:
    data = digits()
    images = ((part * 255).round().byte().numpy() for part in (data.train_images, data.test_images))
    labels = (part.byte().numpy() for part in (data.train_labels, data.test_labels))
    return Arrays(*(array for pair in zip(images, labels, strict=True) for array in pair))


DATASETS: dict[str, Spec] = {
    "digits": Spec(
        title="Digits",
        summary="8,000 + 2,000 images of MNIST that come with the package",
        embedded=_embedded_digits,
    ),
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "svhn": SVHN,
}
