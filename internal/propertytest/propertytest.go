// Package propertytest checks properties with generated input. Only tests link it.
package propertytest

import (
	"flag"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Check is rapid.Check. With -short, each run generates the same input, unless -rapid.seed is given, so that it fails
// only by a change of the code.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if err := keepSeed(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}

var keepSeed = sync.OnceValue(func() error {
	if !testing.Short() || seedIsGiven() {
		return nil
	}
	return flag.Set("rapid.seed", "1")
})

func seedIsGiven() bool { return flag.Lookup("rapid.seed").Value.String() != "0" }
