package host

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"drydock.dev/local/internal/loop"
	"drydock.dev/local/internal/loop/looptest"
)

func TestWhatATrialFindsIsReportedWithItsRemedy(t *testing.T) {
	works := func(string) error { return nil }
	fails := func(string) error { return errors.New("no such device") }
	enter := func() error { return nil }
	found := tryAll(t.TempDir(), enter, []trial{
		{"bridges", "they connect nodes", "use another kernel", fails},
		{"overlayfs", "containers", "use another kernel", works},
		{"TUN", "a guest's network card", "make /dev/net/tun", fails},
	})
	if len(found) != 2 || !strings.Contains(found[0], "bridges did not work") || !strings.HasSuffix(found[1], "no such device; make /dev/net/tun") {
		t.Errorf("two of three features fail, and this is reported: %q", found)
	}
	found = tryAll(t.TempDir(), func() error { return errors.New("operation not permitted") }, []trial{{"bridges", "", "", fails}})
	if len(found) != 1 || !strings.Contains(found[0], "namespaces can't be made") {
		t.Errorf("without namespaces nothing else can be tried, and this is reported: %q", found)
	}
}

// The machine of the whole-system tests has everything that a cluster needs.
func TestATrialLeavesNothingBehind(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces")
	}
	dir := t.TempDir()
	if found := Try(filepath.Join(dir, "not", "there", "yet")); found != nil {
		t.Errorf("on this machine did not work: %q", found)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the trial left %v, %v", left, err)
	}
	// Another trial may run on this machine.
	looptest.AwaitNone(t, func() ([]string, error) { return loop.Under("nobody", dir) })
	if left, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil || strings.Contains(string(left), "trial") {
		t.Errorf("the trial left nftables rules: %s, %v", left, err)
	}
	if left, err := net.InterfaceByName("trial"); err == nil {
		t.Errorf("the trial left the bridge %v", left)
	}
}

func TestAFolderThatCanHoldNoContainersIsReported(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces")
	}
	found := Try("/proc")
	if len(found) != 2 || !strings.Contains(found[0], "overlayfs did not work") || !strings.Contains(found[1], "loop devices did not work") {
		t.Errorf("of a data folder in /proc this is reported: %q", found)
	}
}

func TestAPortThatIsUsedAtEveryAddressIsReported(t *testing.T) {
	everywhere, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = everywhere.Close(), elsewhere.Close() })
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	if taken := takenPorts([]int{port(elsewhere)}); len(taken) > 0 {
		t.Errorf("a port of one other address is no obstacle: %q", taken)
	}
	if taken := takenPorts([]int{port(elsewhere), port(everywhere)}); len(taken) != 1 || !strings.Contains(taken[0], "is used by another program") {
		t.Errorf("of a port that is used at every address this is reported: %q", taken)
	}
}

func TestClustersThatStartAtTheSameTimeShareTheirPorts(t *testing.T) {
	some, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := some.Addr().(*net.TCPAddr).Port
	t.Cleanup(func() { _ = some.Close() })
	var looking sync.WaitGroup
	for range 8 {
		looking.Go(func() {
			for range 500 {
				if taken := takenPorts([]int{port}); len(taken) > 0 {
					t.Errorf("one that only looks takes another for a program that listens: %q", taken)
					return
				}
			}
		})
	}
	looking.Wait()
}
