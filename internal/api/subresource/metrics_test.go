package subresource

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/metrictable"
	"drydock.dev/drydock/internal/metrictable/tabletest"
)

func TestStreamsAreCountedWhileTheyAreOpen(t *testing.T) {
	at := time.Unix(1000, 0)
	s := newStreams()
	s.now = func() time.Time { return at }
	expect := func(when, lines string) {
		t.Helper()
		if err := testutil.CollectAndCompare(s, strings.NewReader(tabletest.Page(lines))); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("before the first", "")
	vmi := types.NamespacedName{Namespace: "ns", Name: "vm"}
	first := s.begin(nodeapi.Console, vmi)
	at = time.Unix(2000, 0)
	second, screen, tunnel := s.begin(nodeapi.Console, vmi), s.begin(nodeapi.VNC, vmi), s.begin(nodeapi.PortForward, vmi)
	s.begin(nodeapi.Pause, vmi)()
	expect("with four", `
kubevirt_console_active_connections{namespace="ns",vmi="vm"} 2
kubevirt_portforward_active_tunnels{namespace="ns",vmi="vm"} 1
kubevirt_vmi_last_api_connection_timestamp_seconds{namespace="ns",vmi="vm"} 2000
kubevirt_vnc_active_connections{namespace="ns",vmi="vm"} 1
`)
	second()
	screen()
	tunnel()
	expect("with one", `
kubevirt_console_active_connections{namespace="ns",vmi="vm"} 1
kubevirt_vmi_last_api_connection_timestamp_seconds{namespace="ns",vmi="vm"} 2000
`)
	first()
	expect("afterwards", `
kubevirt_vmi_last_api_connection_timestamp_seconds{namespace="ns",vmi="vm"} 2000
`)
}

// Tenants make any number of VMIs.
func TestTheLastConnectionsAreBounded(t *testing.T) {
	for what, step := range map[string]time.Duration{"one after another": time.Second, "at one time": 0} {
		at := time.Unix(1000, 0)
		s := newStreams()
		s.now = func() time.Time { return at }
		var last types.NamespacedName
		for i := range 2*maxConnected + 1 {
			at = at.Add(step)
			last = types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("vm", i)}
			s.begin(nodeapi.VNC, last)()
			if n := len(s.opened); n > maxConnected || i >= maxConnected && n < maxConnected/2 {
				t.Fatalf("%s: after %d connections %d are known", what, i+1, n)
			}
		}
		if _, known := s.opened[last]; step > 0 && !known {
			t.Errorf("%s: the last one is forgotten", what)
		}
	}
}

func TestTheTableHasVirtAPIsMetrics(t *testing.T) {
	ready := false
	s := &Server{streams: newStreams()}
	collectors := s.Collectors(func() bool { return ready })
	tabletest.Compare(t, metrictable.API, append(collectors, &certs.Lifetimes{})...)
	for _, value := range []string{"0", "1"} {
		if err := testutil.CollectAndCompare(readiness{func() bool { return ready }}, strings.NewReader(tabletest.Page("kubevirt_virt_api_ready_status "+value+"\n"))); err != nil {
			t.Error(err)
		}
		ready = true
	}
}
