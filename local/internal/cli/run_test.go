package cli

import (
	"strings"
	"testing"
	"time"

	"drydock.dev/local/internal/layout"
)

// A process that `drydock run` left behind would have no owner, so it says how to start the web console.
func TestTheEndOfRunSaysHowToOpenTheWebConsole(t *testing.T) {
	said := whatToTry("/opt/drydock/bin", layout.Cluster{Dir: "/data", Name: "other"}, time.Second)
	for _, line := range []string{"export KUBECONFIG=/data/kubeconfig ", "\n  /opt/drydock/bin/virtctl web ", "\n  /opt/drydock/bin/drydock --dir /data --name other down "} {
		if !strings.Contains(said, line) {
			t.Errorf("it does not say %q but\n%s", line, said)
		}
	}
}
