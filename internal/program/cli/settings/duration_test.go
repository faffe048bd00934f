package settings

import (
	"testing"
	"time"
)

func TestBrief(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 15 * time.Second: "15s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", 24 * time.Hour: "24h", 2160 * time.Hour: "90d", time.Hour + time.Second: "1h0m1s",
	} {
		got := brief(d.String())
		if back, err := ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%s is %s, and that is %s, %v", d, got, back, err)
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	const wrong = time.Duration(-1)
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0": 0, "1.5": 1500 * time.Millisecond, "+5": 5 * time.Second, "-5": -5 * time.Second, "05": 5 * time.Second,
		"5s": 5 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond,
		"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "-1d12h": -36 * time.Hour, "106751d": 106751 * 24 * time.Hour, "0d": 0,
		"": wrong, "soon": wrong, "5 s": wrong, "1e3": wrong, "0x10": wrong, "inf": wrong, "nan": wrong, ".": wrong, "5m5": wrong, "d": wrong, "1.5d": wrong,
		"106752d": wrong, "99999999999999999999": wrong, "99999999999999999999d": wrong, "1d-1h": wrong, "1d1d": wrong, "--5": wrong,
	} {
		got, err := ParseDuration(text)
		if err != nil {
			got = wrong
		}
		if got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
