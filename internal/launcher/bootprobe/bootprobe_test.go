package bootprobe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/shipped"
)

// asQEMU, when set, turns the test binary into a stand-in for QEMU with this behavior.
const asQEMU = "DRYDOCK_TEST_AS_QEMU"

func TestMain(m *testing.M) {
	if behavior := os.Getenv(asQEMU); behavior != "" {
		standIn(behavior)
		return
	}
	os.Exit(m.Run())
}

// patience is for guests that end: no test waits for all of it.
const patience = 4 * time.Minute

func qemu(t *testing.T) string {
	t.Helper()
	return shipped.Program(t, "qemu-system-x86_64")
}

func TestTheGuestRunsEmulated(t *testing.T) {
	for _, firmware := range []Firmware{BIOS, UEFI} {
		t.Run(string(firmware), func(t *testing.T) {
			got := Probe{QEMU: qemu(t), Root: shipped.File(t, "/"), Accel: TCG, Firmware: firmware, Deadline: 2 * patience}.Run(t.Context())
			if !got.OK || got.Reason != "" || got.Stage != "long mode on the second CPU" || got.Took <= 0 {
				t.Errorf("%+v", got)
			}
			t.Logf("%v with tcg through %s", got.Took, firmware)
		})
	}
}

// Whatever the host's KVM is, a run must end with a verdict.
func TestTheGuestIsJudgedWithTheHostsKVM(t *testing.T) {
	_, err := os.Stat(layout.KVMDevice)
	for _, firmware := range []Firmware{BIOS, UEFI} {
		t.Run(string(firmware), func(t *testing.T) {
			got := Probe{QEMU: qemu(t), Root: shipped.File(t, "/"), Accel: KVM, Firmware: firmware, Deadline: 20 * time.Second}.Run(t.Context())
			t.Logf("%+v", got)
			if got.OK == (got.Reason != "") {
				t.Errorf("%+v", got)
			}
			if err != nil && (got.OK || !strings.Contains(got.Reason, "KVM")) {
				t.Errorf("without /dev/kvm: %+v", got)
			}
		})
	}
}

func image(code ...byte) []byte {
	sector := make([]byte, 512)
	copy(sector, code)
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// says returns instructions that report stages.
func says(letters string) []byte {
	var code []byte
	for _, letter := range []byte(letters) {
		code = append(code, 0xb0, letter, 0xe6, 0xe9) // mov letter,%al; out %al,$0xe9
	}
	return code
}

// leaves returns instructions that write to isa-debug-exit.
func leaves(value byte) []byte { return []byte{0xb0, value, 0xe6, 0xf4} }

var (
	spin        = []byte{0xeb, 0xfe}             // jmp itself
	halt        = []byte{0xfa, 0xf4, 0xeb, 0xfc} // cli; hlt; again
	tripleFault = []byte{0x31, 0xc0, 0x8e, 0xd8, // xor %ax,%ax; mov %ax,%ds
		0xc7, 0x06, 0x00, 0x06, 0x00, 0x00, // movw $0,0x600
		0x0f, 0x01, 0x1e, 0x00, 0x06, // lidt 0x600: a table without entries
		0xcc} // int3
)

func TestBrokenGuestsAreToldFromEachOther(t *testing.T) {
	patched := func(stage byte) []byte {
		before := []byte{0xb0, stage, 0xe6, 0xe9}
		if bytes.Count(biosGuest, before) != 1 {
			t.Fatalf("the guest reports stage %c %d times", stage, bytes.Count(biosGuest, before))
		}
		return bytes.Replace(biosGuest, before, []byte{0x0f, 0x0b, 0x0f, 0x0b}, 1) // ud2
	}
	join := func(parts ...[]byte) []byte { return image(bytes.Join(parts, nil)...) }
	const brief = time.Second
	for name, c := range map[string]struct {
		image         []byte
		deadline      time.Duration
		stage, reason string
	}{
		"it never does anything": {join(spin), brief, "",
			"the guest stopped in the firmware (BIOS), before its own first instruction: it did not finish within 1s"},
		"it stops in real mode": {join(says("r"), halt), brief, "real mode",
			"the guest stopped after real mode, before protected mode: it did not finish within 1s"},
		"it stops half way": {join(says("rpl"), halt), brief, "long mode",
			"the guest stopped after long mode, before memory-mapped I/O: it did not finish within 1s"},
		"it never gets the timer's interrupt": {join(says("rplm"), spin), brief, "memory-mapped I/O",
			"the guest stopped after memory-mapped I/O, before the timer interrupt: it did not finish within 1s"},
		"a triple fault": {join(says("r"), tripleFault), patience, "real mode",
			"the guest stopped after real mode, before protected mode: it was reset, as by a triple fault"},
		"an exit with success before the end": {join(says("rp"), leaves(exitDone)), patience, "protected mode",
			"the guest stopped after protected mode, before long mode: QEMU ended with exit code 85"},
		"stages in a wrong order": {join(says("cailptmr"), leaves(exitDone)), patience, "real mode",
			"the guest stopped after real mode, before protected mode: QEMU ended with exit code 85"},
		"an exit with another code": {join(says("r"), leaves(7)), patience, "real mode",
			"the guest stopped after real mode, before protected mode: QEMU ended with exit code 15"},
		"memory-mapped I/O that lies": {join(says("rpl"), leaves(exitMMIO)), patience, "long mode",
			"the guest stopped after long mode, before memory-mapped I/O: memory-mapped I/O gave a wrong answer"},
		"every stage and no end": {join(says("rplmtiac"), spin), brief, "long mode on the second CPU",
			"the guest stopped after its last stage: it did not finish within 1s"},
		"an invalid instruction before the timer": {patched('m'), patience, "long mode",
			"the guest stopped after long mode, before memory-mapped I/O: the CPU raised exception 6"},
		"an invalid instruction on the second CPU": {patched('c'), patience, "the start of the second CPU",
			"the guest stopped after the start of the second CPU, before long mode on the second CPU: the CPU raised exception 6"},
	} {
		t.Run(name, func(t *testing.T) {
			deadline := c.deadline
			var got Outcome
			// On a busy machine the firmware alone may take longer than the deadline of a guest that never ends.
			for ; deadline <= patience; deadline *= 2 {
				got = Probe{QEMU: qemu(t), Accel: TCG, Firmware: BIOS, Deadline: deadline, image: c.image}.Run(t.Context())
				if got.Stage == c.stage {
					break
				}
			}
			want := strings.ReplaceAll(c.reason, "within 1s", fmt.Sprintf("within %v", deadline))
			if got.OK || got.Stage != c.stage || got.Reason != want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// standIn plays QEMU.
func standIn(behavior string) {
	if behavior == "dies" {
		fmt.Fprintln(os.Stderr, "qemu-system-x86_64: warning: this is old")
		fmt.Fprintln(os.Stderr, "qemu-system-x86_64: failed to initialize kvm: Device or resource busy")
		os.Exit(1)
	}
	conn, err := net.FileConn(os.NewFile(monitorFD, "monitor"))
	if err != nil {
		panic(err)
	}
	stages := os.NewFile(stagesFD, "stages")
	switch behavior {
	case "mute":
		hang()
	case "floods":
		go func() {
			for {
				_, _ = stages.Write(bytes.Repeat([]byte("r"), 1<<16))
			}
		}()
		event := []byte(strings.Repeat(`{"event":"RTC_CHANGE","data":{}}`+"\n", 1000))
		for err == nil {
			_, err = conn.Write(event)
		}
		hang()
	}
	_, _ = stages.WriteString("r")
	answer(conn, behavior)
}

// hang does nothing until the process is killed. (Go ends a program whose goroutines can never wake.)
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// answer speaks as much QMP as the probe needs.
func answer(conn net.Conn, behavior string) {
	say := func(text string) { _, _ = conn.Write([]byte(text + "\n")) }
	say(`{"QMP": {"version": {}, "capabilities": []}}`)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var command struct {
			Execute string `json:"execute"`
			ID      uint64 `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			panic(err)
		}
		switch {
		case command.Execute == "cont" && behavior == "refuses":
			say(fmt.Sprintf(`{"id": %d, "error": {"class": "GenericError", "desc": "Resetting the Virtual Machine is required"}}`, command.ID))
		case command.Execute == "cont" && behavior == "aborts":
			fmt.Fprintln(os.Stderr, "error: kvm run failed Bad address")
			fmt.Fprintln(os.Stderr, "RIP=000000000000fff0 RFL=00000002")
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			hang()
		case command.Execute == "query-status" && behavior == "stops answering":
			hang()
		case command.Execute == "query-status":
			fmt.Fprintln(os.Stderr, "KVM internal error. Suberror: 1")
			say(fmt.Sprintf(`{"id": %d, "return": {"status": "internal-error", "running": false}}`, command.ID))
		default:
			say(fmt.Sprintf(`{"id": %d, "return": {}}`, command.ID))
		}
	}
}

func TestABrokenQEMUIsNoticed(t *testing.T) {
	for behavior, want := range map[string]struct {
		reason string
		// deadline is long for a QEMU that ends the probe by itself.
		deadline time.Duration
	}{
		"dies": {"QEMU does not start: QEMU ended with exit code 1: qemu-system-x86_64: failed to initialize kvm: Device or resource busy", time.Hour},
		"internal-error": {"the guest stopped after real mode, before protected mode: QEMU's run state is internal-error: KVM internal error. Suberror: 1",
			time.Hour},
		"refuses": {"the guest stopped after real mode, before protected mode: QEMU's run state is internal-error: KVM internal error. Suberror: 1",
			time.Hour},
		"aborts": {"the guest stopped after real mode, before protected mode: QEMU was ended by signal 9 (killed): error: kvm run failed Bad address",
			time.Hour},
		"stops answering": {"the guest stopped after real mode, before protected mode: it did not finish within 200ms", 200 * time.Millisecond},
		"mute":            {"QEMU does not start: QEMU did not answer within 2s", time.Millisecond},
		"floods":          {"QEMU does not start: ", time.Hour},
	} {
		t.Run(behavior, func(t *testing.T) {
			t.Parallel()
			probe := Probe{QEMU: os.Args[0], Accel: KVM, Firmware: BIOS, Deadline: want.deadline, start: patience, env: []string{asQEMU + "=" + behavior}}
			if behavior == "mute" || behavior == "floods" { // they never answer
				probe.start = 2 * time.Second
			}
			begin := time.Now()
			got := probe.Run(t.Context())
			if got.OK || !strings.HasPrefix(got.Reason, want.reason) {
				t.Errorf("%+v", got)
			}
			if took := time.Since(begin); took > patience {
				t.Errorf("it took %v", took)
			}
		})
	}
	got := Probe{QEMU: "/no/such/qemu", Accel: TCG, Firmware: BIOS, Deadline: patience}.Run(t.Context())
	if got.OK || !strings.Contains(got.Reason, "QEMU does not start: fork/exec /no/such/qemu: no such file or directory") {
		t.Errorf("without QEMU: %+v", got)
	}
}
