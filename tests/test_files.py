"""Files that somebody names: only ordinary ones are read, and none is waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cp.access.rights_file import BadAccessFile
from cp.files import LARGEST, read_file
from cp.serving.access_keeper import AccessKeeper
from cp.serving.public_keys import offline_keys
from cp.serving.server_certificate import CertificateFiles, UnusableCertificate, read
from cp.settings import BadSettings, load


def test_a_file_is_read_up_to_the_size_that_it_may_have(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * LARGEST)
    assert len(read_file(file)) == LARGEST

    file.write_bytes(b"x" * (LARGEST + 1))
    with pytest.raises(OSError, match="more than 1048576 bytes") as caught:
        read_file(file)
    assert caught.value.strerror == "it has more than 1048576 bytes"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_ordinary_file_is_refused_at_once(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "file")

    with pytest.raises(OSError, match=r"no ordinary file|Is a directory") as caught:
        read_file(str(tmp_path / "file"))
    assert caught.value.strerror


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "file")


@pytest.mark.parametrize(
    ("reads", "fault"),
    [
        (lambda pipe: read(CertificateFiles(pipe, pipe, None)), UnusableCertificate),
        (lambda pipe: AccessKeeper(load(access_file=pipe), ()), BadAccessFile),
        (lambda pipe: offline_keys(load(token_public_keys=pipe)), BadSettings),
    ],
)
def test_a_pipe_that_a_setting_names_is_a_fault(
    reads: Callable[[Path], object], fault: type[Exception], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(fault, match="no ordinary file"):
        reads(tmp_path / "pipe")
