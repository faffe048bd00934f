package main

import (
	"flag"
	"fmt"
	"time"
)

// A short run is for seeing that nothing got much slower: its figures spread more, its ratios
// less. What is given on the command line stays as it is.
var (
	shortBench = map[string]string{"callers": "16,256", "rounds": "2", "seconds": "1.5"}
	shortMix   = map[string]string{"rates": "100,max", "seconds": "6"}
)

// How long the database server is written to before the measurements.
const (
	warmUp      = 20 * time.Second
	shortWarmUp = 5 * time.Second
)

// parse parses the arguments of a role with a flag for a short run, whose defaults are others.
func parse(flags *flag.FlagSet, args []string, short map[string]string) (warm time.Duration, err error) {
	isShort := flags.Bool("short", false, "about a minute: fewer figures and shorter runs, unless they are given")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if flags.NArg() > 0 { // what follows would not count
		return 0, fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	if !*isShort {
		return warmUp, nil
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range short {
		if given[name] {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return 0, err
		}
	}
	return shortWarmUp, nil
}
