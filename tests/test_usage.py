"""What models cost."""

from sonar_eval.usage import Price


def test_a_price_is_per_million_tokens():
    assert Price(2.0, 8.0).of(1_000_000, 500_000) == 6.0


def test_cached_input_has_a_price_of_its_own_where_one_is_named():
    assert Price(2.0, 8.0, cached_input=0.5).of(1_000_000, 0, cached_tokens=400_000) == 1.4
    assert Price(2.0, 8.0).of(1_000_000, 0, cached_tokens=400_000) == 2.0
