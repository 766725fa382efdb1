package supervisor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"drydock.dev/local/internal/environ"
)

// The shell configures etcd, kubectl and a proxy.
func TestComponentsDoNotInheritTheShellOfTheFirstUp(t *testing.T) {
	t.Setenv("ETCD_DATA_DIR", "/tmp/elsewhere")
	t.Setenv("KUBECONFIG", "/tmp/elsewhere")
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	s := running(t)
	for name, pid := range pids(s) {
		text := environment(t, pid)
		got := strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
		want := environ.Of(s.cluster, os.Environ())
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the environment of %s is\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if strings.Contains(text, "elsewhere") || !strings.Contains(text, ","+s.cluster.Subnet().String()+",") {
			t.Errorf("the environment of %s passes a setting on or sends the cluster through the proxy: %q", name, text)
		}
	}
}

// environment awaits that a started process shows its environment: that is a moment after its program has begun.
func environment(t *testing.T, pid int) string {
	t.Helper()
	for deadline, tick := time.Now().Add(4*time.Minute), time.Tick(time.Millisecond); ; <-tick {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 0 {
			return string(data)
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not show its environment", pid)
		}
	}
}
