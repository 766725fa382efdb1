package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

func (r *running) freezer(args ...string) (string, bool) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), os.Args[0], append([]string{"--dir", r.dir}, args...)...)
	cmd.Args[0] = filepath.Base(layout.FreezerBinary)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	said, err := cmd.CombinedOutput()
	return string(said), err == nil
}

// This port counts as open in the guest: it is always open.
var openPort = []string{"-chardev", "null,id=" + layout.AgentChardev, "-device", "isa-serial,chardev=" + layout.AgentChardev}

func TestABackupFreezesAndThaws(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	if reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs(openPort...), GracePeriodSeconds: 30}}); reply.Error != "" {
		t.Fatalf("starting QEMU: %+v", reply)
	}
	m, agent := r.monitor(), r.agent(&standIn{})
	if said, ok := r.freezer("--freeze", "--name", "vm", "--namespace", "lab"); !ok || !agent.isFrozen() {
		t.Errorf("freezing: %s; frozen: %v", said, agent.isFrozen())
	}
	if got := c.held(false); got.Holder != launch.HolderUser || got.Method != launch.MethodAgent {
		t.Errorf("the guest is held by %+v", got)
	}
	if said, ok := r.freezer("--unfreeze", "--name", "vm", "--namespace", "lab"); !ok {
		t.Errorf("thawing: %s", said)
	}
	waitFor(t, "the thaw", func() bool { return !agent.isFrozen() })
	awaitNoMarkers(t, m)
	if said, ok := r.freezer("--unfreeze"); !ok {
		t.Errorf("thawing what is not frozen: %s", said)
	}
	c.holdNext(launch.Quiesce{Holder: "snap", Milliseconds: 30000})
	if !slices.Equal(c.frozen, []bool{true, false}) {
		t.Errorf("virt-handler has heard %v", c.frozen)
	}
	if said, ok := r.freezer("--freeze"); ok || !strings.Contains(said, `the snapshot "snap"`) {
		t.Errorf("freezing what is snapshotted: %s", said)
	}
	c.release("snap", "")
}

func TestABackupThatIsNotEndedThaws(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	if reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs(openPort...), GracePeriodSeconds: 30}}); reply.Error != "" {
		t.Fatalf("starting QEMU: %+v", reply)
	}
	agent := r.agent(&standIn{})
	seconds := 1
	waitFor(t, "a guest that is frozen before it is to be thawed", func() bool {
		said, ok := r.freezer("--freeze", "--unfreezeTimeoutSeconds", strconv.Itoa(seconds))
		switch {
		case ok || strings.Contains(said, "has not gone on yet"):
		case strings.Contains(said, "it was not released before its deadline"):
			seconds *= 2
		default:
			t.Fatalf("freezing: %s", said)
		}
		return ok
	})
	waitFor(t, "the thaw", func() bool { return !agent.isFrozen() })
}

func TestWhatABackupIsAnswered(t *testing.T) {
	r := newLauncher(t)
	r.connect()
	if said, ok := r.freezer("--freeze"); ok || !strings.Contains(said, "does not run") {
		t.Errorf("before the guest runs: %s", said)
	}
	c, _ := r.connect()
	if reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs(), GracePeriodSeconds: 30}}); reply.Error != "" {
		t.Fatalf("starting QEMU: %+v", reply)
	}
	if said, ok := r.freezer("--freeze"); !ok || !strings.Contains(said, "no guest agent is connected") {
		t.Errorf("without an agent: %s", said)
	}
	for _, wrong := range [][]string{{}, {"--freeze", "--unfreeze"}, {"--freeze", "--unfreezeTimeoutSeconds", "0"}, {"--freeze", "--unfreezeTimeoutSeconds", "3601"}} {
		if said, ok := r.freezer(wrong...); ok || !strings.Contains(said, "say either") {
			t.Errorf("%q: %s", wrong, said)
		}
	}
	if said, ok := r.freezer("--melt"); ok {
		t.Errorf("an unknown flag: %s", said)
	}
}
