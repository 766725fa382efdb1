package supervisor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"drydock.dev/local/internal/environ"
)

// TestComponentsDoNotInheritTheShellOfTheFirstUp checks the environment of processes that were started from a shell
// that configures etcd, kubectl and a proxy.
func TestComponentsDoNotInheritTheShellOfTheFirstUp(t *testing.T) {
	t.Setenv("ETCD_DATA_DIR", "/tmp/elsewhere")
	t.Setenv("KUBECONFIG", "/tmp/elsewhere")
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	s := running(t)
	for name, pid := range pids(s) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		want := environ.Of(s.cluster, os.Environ())
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the environment of %s is\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if text := string(data); strings.Contains(text, "elsewhere") || !strings.Contains(text, ","+s.cluster.Subnet().String()+",") {
			t.Errorf("the environment of %s passes a setting on or sends the cluster through the proxy: %q", name, text)
		}
	}
}
