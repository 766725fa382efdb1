package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An ending is one of halt, poweroff and reboot.
type ending struct {
	words  string
	action int
}

var (
	powerOff = ending{words: "powering off", action: unix.LINUX_REBOOT_CMD_POWER_OFF}
	restart  = ending{words: "rebooting", action: unix.LINUX_REBOOT_CMD_RESTART}
)

const (
	// lastWords bounds the time that consoles have to send their output, and then programs to end, before the guest
	// goes down.
	lastWords = 2 * time.Second
	// pollEnd is the interval at which init checks whether they have.
	pollEnd = 5 * time.Millisecond
)

// shutdown is the command of the guest agent: -r reboots, everything else powers off. Like busybox's poweroff and
// reboot it only signals init.
func shutdown(_ context.Context, args []string) error {
	if slices.Contains(args, "-r") {
		return unix.Kill(1, unix.SIGTERM)
	}
	return unix.Kill(1, unix.SIGUSR2)
}

// Only init may call end, because nobody ends init.
func end(way ending) error {
	say("%s", way.words)
	drainConsoles()
	stopPrograms()
	report("unmounting", unmountDisks())
	unix.Sync()
	if err := unix.Reboot(way.action); err != nil {
		return fmt.Errorf("%s: %w", way.words, err)
	}
	return nil
}

// The end of a login hangs its terminal up, and the kernel then discards unsent output. A console without a
// reader does not delay the shutdown.
func drainConsoles() {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, name := range consoles() {
			report("draining "+name, drain(name))
		}
	}()
	select {
	case <-sent:
	case <-time.After(lastWords):
	}
}

// drain is tcdrain(3).
func drain(name string) error {
	console, err := os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(console.Fd()), unix.TCSBRK, 1), console.Close())
}

// An interactive shell reacts only to its terminal's end.
func stopPrograms() {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGHUP} {
		if err := unix.Kill(-1, signal); err != nil {
			return // no child is left
		}
	}
	deadline := time.Now().Add(lastWords)
	for time.Now().Before(deadline) {
		child, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.ECHILD) {
			return
		}
		if child <= 0 {
			time.Sleep(pollEnd) // wait4 has no deadline
		}
	}
	_ = unix.Kill(-1, unix.SIGKILL) // for programs that ignored the other signals
}

// The last mounted comes first.
func unmountDisks() error {
	table, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return err
	}
	var errs []error
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	for _, line := range slices.Backward(lines) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[0], "/dev/") {
			errs = append(errs, unix.Unmount(fields[1], 0))
		}
	}
	return errors.Join(errs...)
}

// watchPowerButton shuts the guest down when the machine's power button is pressed, which is a hypervisor's request. It
// is a separate process, acpid, so that a test can make a guest deaf by stopping it.
func watchPowerButton(ctx context.Context, _ []string) error {
	buttons, err := powerButtons()
	if err != nil {
		return err
	}
	pressed := make(chan struct{})
	for _, button := range buttons {
		go awaitPress(ctx, button, pressed)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pressed:
		return shutdown(ctx, nil)
	}
}

func powerButtons() ([]*os.File, error) {
	names, err := filepath.Glob("/sys/class/input/event*/device/name")
	if err != nil {
		return nil, fmt.Errorf("looking for the power button: %w", err)
	}
	var buttons []*os.File
	for _, name := range names {
		label, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(label)) != "Power Button" {
			continue
		}
		device := "/dev/input/" + strings.Split(name, "/")[4]
		button, err := os.Open(device)
		if err != nil {
			return nil, fmt.Errorf("watching the power button: %w", err)
		}
		buttons = append(buttons, button)
	}
	if len(buttons) == 0 {
		return nil, errors.New("looking for the power button: this machine has none")
	}
	return buttons, nil
}

// inputEvent is the kernel's struct input_event.
type inputEvent struct {
	Seconds, Microseconds int64
	Kind, Code            uint16
	Value                 int32
}

const (
	keyEvent = 1
	keyPower = 116
	keyDown  = 1
)

func awaitPress(ctx context.Context, button io.ReadCloser, pressed chan<- struct{}) {
	stop := context.AfterFunc(ctx, func() { _ = button.Close() })
	defer stop()
	for {
		var event inputEvent
		if err := binary.Read(button, binary.LittleEndian, &event); err != nil {
			return
		}
		if event.Kind != keyEvent || event.Code != keyPower || event.Value != keyDown {
			continue
		}
		select {
		case pressed <- struct{}{}:
		case <-ctx.Done():
		}
		return
	}
}

// crash makes the kernel panic.
func crash(context.Context, []string) error {
	if err := os.WriteFile("/proc/sys/kernel/sysrq", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("allowing the panic: %w", err)
	}
	return os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0o200)
}
