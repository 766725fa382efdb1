// Package tabletest compares a component's metrics with the table of metrics, for tests. It must not be linked into a
// component.
package tabletest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"drydock.dev/drydock/internal/metrictable"
)

var nameOf = regexp.MustCompile(`fqName: "([^"]+)"`)

// Compare fails unless the collectors describe the component's metrics of the table and no others.
func Compare(t *testing.T, by metrictable.Component, collectors ...prometheus.Collector) {
	t.Helper()
	described := map[string]bool{}
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for desc := range descs {
			name := nameOf.FindStringSubmatch(desc.String())
			if name == nil {
				t.Fatalf("%s has no name", desc)
			}
			described[name[1]] = true
		}
	}
	want := metrictable.Names(by)
	for _, name := range want {
		if !described[name] {
			t.Errorf("the table says that %s serves %s, and it does not", by, name)
		}
	}
	for name := range described {
		if !slices.Contains(want, name) {
			t.Errorf("%s serves %s, which the table does not say", by, name)
		}
	}
}

// Page adds the lines of help and type to lines of values, which are sorted by metric, as a scrape shows them.
func Page(values string) string {
	var b strings.Builder
	last := ""
	for line := range strings.Lines(strings.TrimPrefix(values, "\n")) {
		if name := line[:strings.IndexAny(line, "{ ")]; name != last {
			m := metrictable.Get(name)
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, m.Help, m.Type)
			last = name
		}
		b.WriteString(line)
	}
	return b.String()
}
