# SPDX-License-Identifier: Apache-2.0
"""Stored messages: some that a broker of 5.5.0 sent, then every kind of damage."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_messages import PULLED, stored

from infra.systems.rocketmq.protocol.messages import (
    BORN_V6,
    COMPRESSED,
    INNER_BATCH,
    MAGIC_V1,
    MAGIC_V2,
    STORED_V6,
    Message,
    MessageError,
    decode,
    decode_all,
    decode_properties,
    encode_properties,
    offset_message_id,
    parse_offset_message_id,
)


def test_what_a_broker_sent() -> None:
    first, second = decode_all(PULLED)
    assert first == Message(
        topic="captured",
        queue=0,
        offset=0,
        physical=6977421,
        body=b"17",
        properties={
            "MSG_REGION": "DefaultRegion",
            "UNIQ_KEY": "E3B454EE917338FC00003C2900000001",
            "CLUSTER": "harness",
            "TAGS": "a",
            "KEYS": "k1",
            "TRACE_ON": "true",
        },
        born=1795266417033,
        stored=1795266417036,
        born_host="127.0.0.1:40550",
        store_host="127.0.0.1:21911",
        system_flag=0,
        flag=0,
        reconsumed=0,
        prepared=0,
        intact=True,
    )
    assert first.message_id == "7F0000010000559700000000006A778D"
    assert (second.offset, second.body.decode(), second.prepared, second.system_flag) == (1, "é", 6977634, 8)


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("flags", [0, BORN_V6, STORED_V6, BORN_V6 | STORED_V6])
def test_both_layouts_and_both_kinds_of_address(magic: int, flags: int) -> None:
    topic = "t" * (300 if magic == MAGIC_V2 else 100)
    message, end = decode(b"xx" + stored(topic=topic, magic=magic, system_flag=flags), 2)
    assert end == 2 + len(stored(topic=topic, magic=magic, system_flag=flags))
    assert (message.topic, message.queue, message.offset, message.physical) == (topic, 3, 5, 1000)
    assert message.born_host == ("[2001::1]:40000" if flags & BORN_V6 else "10.0.0.1:40000")
    assert message.store_host == ("[2001::1]:10911" if flags & STORED_V6 else "10.0.0.1:10911")
    assert parse_offset_message_id(message.message_id)[1:] == (10911, 1000)


def test_a_body_that_is_not_what_was_stored_is_marked() -> None:
    assert not decode(stored(crc=1))[0].intact
    assert decode(stored(crc=1))[0].body == b"1"


def test_properties_with_zero_bytes_are_torn() -> None:
    """The page with the end of a record did not reach the disk: its properties are the last of it."""
    whole = stored(properties=encode_properties({"TAGS": "a", "KEYS": "k1"}).encode())
    assert not decode(whole)[0].torn
    half = decode(whole[:-4] + bytes(4))[0]
    assert half.torn
    assert half.intact
    assert decode(whole[:-10] + bytes(10))[0].torn


def test_compressed_bodies_unfold() -> None:
    body = zlib.compress(b"7" * 5000)
    assert decode(stored(body, system_flag=COMPRESSED))[0].body == b"7" * 5000
    with pytest.raises(MessageError, match="LZ4 or ZSTD"):
        decode(stored(body, system_flag=COMPRESSED | 1 << 8))
    with pytest.raises(MessageError, match="cannot be decompressed"):
        decode(stored(b"plain", system_flag=COMPRESSED))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\0\0\1", "cut off"),
        (stored(magic=0x12345678), "magic number 0x12345678"),
        (stored()[:-1], "are there"),
        (stored(size_off_by=1) + b"x", "whose parts have"),
        (stored(system_flag=INNER_BATCH), "inner batch"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(MessageError, match=said):
        decode_all(data)


@given(st.integers(0, len(PULLED) - 1), st.integers(1, 255))
def test_no_damage_ends_in_another_exception(at: int, change: int) -> None:
    damaged = bytearray(PULLED)
    damaged[at] ^= change
    assert "\n" not in refusal(bytes(damaged))


def refusal(data: bytes) -> str:
    try:
        decode_all(data)
    except MessageError as e:
        return str(e)
    return ""


words = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1, max_size=10)


@given(st.dictionaries(words, words))
def test_properties_survive(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"": "b"}, {"a": "b" * 40000}])
def test_properties_that_cannot_travel_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="propert"):
        encode_properties(properties)


@given(st.ip_addresses(), st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_ids_of_places(ip: object, port: int, physical: int) -> None:
    assert parse_offset_message_id(offset_message_id(str(ip), port, physical)) == (str(ip), port, physical)


@pytest.mark.parametrize("text", ["", "7F", "zz" * 16, "7F000001000055970000000000000000,7F00", "00" * 17])
def test_what_is_no_id_of_a_place(text: str) -> None:
    with pytest.raises(MessageError, match="not a message id"):
        parse_offset_message_id(text)
