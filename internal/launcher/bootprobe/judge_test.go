package bootprobe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

func exited(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }

func TestJudge(t *testing.T) {
	const all, allUEFI = "rplmtiac", "uplmtiac"
	for name, c := range map[string]struct {
		seen     observation
		firmware Firmware
		want     Outcome
	}{
		"all stages and the right code": {
			observation{ran: true, exited: true, status: exited(85), letters: []byte(all)}, BIOS,
			Outcome{OK: true, Stage: "long mode on the second CPU"}},
		"all stages through UEFI": {
			observation{ran: true, exited: true, status: exited(85), letters: []byte(allUEFI)}, UEFI,
			Outcome{OK: true, Stage: "long mode on the second CPU"}},
		"the BIOS's stages through UEFI": {
			observation{ran: true, exited: true, status: exited(85), letters: []byte(all)}, UEFI,
			Outcome{Reason: "the guest stopped in the firmware (UEFI), before its own first instruction: QEMU ended with exit code 85"}},
		"a run state in which no guest goes on": {
			observation{ran: true, state: "internal-error", letters: []byte("rp"), words: "emulation failure"}, BIOS,
			Outcome{Stage: "protected mode", Reason: "the guest stopped after protected mode, before long mode: QEMU's run state is internal-error: emulation failure"}},
		"a bad run state is told before the deadline": {
			observation{ran: true, late: true, state: "paused", cpu: time.Second, deadline: time.Second, letters: []byte("r")}, BIOS,
			Outcome{Stage: "real mode", Reason: "the guest stopped after real mode, before protected mode: QEMU's run state is paused"}},
		"late, busy all the time": {
			observation{ran: true, late: true, state: "running", deadline: 2 * time.Second, cpu: time.Second, letters: []byte("r")}, BIOS,
			Outcome{Stage: "real mode", Reason: "the guest stopped after real mode, before protected mode: it did not finish within 2s"}},
		"late, and it had no CPU": {
			observation{ran: true, late: true, state: "running", deadline: 2 * time.Second, cpu: time.Second - 1, letters: []byte("r")}, BIOS,
			Outcome{Stage: "real mode", Starved: true, Reason: "the guest stopped after real mode, before protected mode: it did not finish within 2s"}},
		"the monitor hung while the guest was let go": {
			observation{ran: true, err: fmt.Errorf("QMP cont: %w", context.DeadlineExceeded), deadline: time.Second}, BIOS,
			Outcome{Starved: true, Reason: "the guest stopped in the firmware (BIOS), before its own first instruction: it did not finish within 1s"}},
		"the monitor never spoke": {
			observation{err: context.DeadlineExceeded, start: 20 * time.Second, cpu: 10 * time.Second}, BIOS,
			Outcome{Reason: "QEMU does not start: QEMU did not answer within 20s"}},
		"the monitor never spoke, and QEMU had no CPU": {
			observation{err: context.DeadlineExceeded, start: 20 * time.Second, cpu: 10*time.Second - 1}, BIOS,
			Outcome{Starved: true, Reason: "QEMU does not start: QEMU did not answer within 20s"}},
		"the monitor spoke nonsense": {
			observation{err: errors.New("reading the greeting: invalid character")}, BIOS,
			Outcome{Reason: "QEMU does not start: reading the greeting: invalid character"}},
		"a monitor that was closed under a guest": {
			observation{ran: true, letters: []byte("r")}, BIOS,
			Outcome{Stage: "real mode", Reason: "the guest stopped after real mode, before protected mode: QEMU's monitor was closed"}},
		"QEMU gives up before the guest": {
			observation{err: errors.New("EOF"), exited: true, status: exited(1), words: "Could not access KVM kernel module: Permission denied"}, BIOS,
			Outcome{Reason: "QEMU does not start: QEMU ended with exit code 1: Could not access KVM kernel module: Permission denied"}},
		"QEMU aborts": {
			observation{ran: true, exited: true, status: syscall.WaitStatus(syscall.SIGABRT), letters: []byte("r"), words: "Bad address"}, BIOS,
			Outcome{Stage: "real mode", Reason: "the guest stopped after real mode, before protected mode: QEMU was ended by signal 6 (aborted): Bad address"}},
		"an exit before the guest runs is no reset": {
			observation{err: errors.New("EOF"), exited: true}, BIOS,
			Outcome{Reason: "QEMU does not start: QEMU ended with exit code 0"}},
		"a page fault": {
			observation{ran: true, exited: true, status: exited((exitException+14)<<1 | 1), letters: []byte("rpl")}, BIOS,
			Outcome{Stage: "long mode", Reason: "the guest stopped after long mode, before memory-mapped I/O: the CPU raised exception 14"}},
	} {
		if got := judge(c.seen, c.firmware); got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

// Nothing that QEMU or a guest does may pass for success, and every failure must have a reason.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("rplmtiac"), "running", 85, true, true, false)
	f.Add([]byte("uplmtiac"), "internal-error", 0, false, true, true)
	f.Fuzz(func(t *testing.T, letters []byte, state string, status int, ended, ran, late bool) {
		seen := observation{letters: letters, state: state, status: syscall.WaitStatus(status), exited: ended, ran: ran, late: late}
		for _, firmware := range []Firmware{BIOS, UEFI} {
			got := judge(seen, firmware)
			if got.OK == (got.Reason != "") {
				t.Errorf("%+v", got)
			}
			if got.OK && (!ended || seen.status != exited(85) && seen.status.ExitStatus() != 85 || !strings.Contains(string(letters), "c")) {
				t.Errorf("%+v passes for success", seen)
			}
		}
	})
}
