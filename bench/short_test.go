package main

import (
	"errors"
	"flag"
	"io"
	"testing"
	"time"
)

// A short run changes the defaults, and nothing that was given.
func TestShort(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		callers string
		rounds  int
		warm    time.Duration
	}{
		"long":         {nil, "1,16", 3, warmUp},
		"short":        {[]string{"-short"}, "64", 1, shortWarmUp},
		"given before": {[]string{"-rounds", "3", "-short"}, "64", 3, shortWarmUp},
		"given after":  {[]string{"-short", "-callers", "7", "-rounds=5"}, "7", 5, shortWarmUp},
	} {
		flags := flag.NewFlagSet(name, flag.ContinueOnError)
		callers, rounds := flags.String("callers", "1,16", ""), flags.Int("rounds", 3, "")
		warm, err := parse(flags, c.args, map[string]string{"callers": "64", "rounds": "1"})
		if err != nil || *callers != c.callers || *rounds != c.rounds || warm != c.warm {
			t.Errorf("%s: %s callers, %d rounds, %s, %v", name, *callers, *rounds, warm, err)
		}
	}
	flags := flag.NewFlagSet("wrong", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if _, err := parse(flags, []string{"-help"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
