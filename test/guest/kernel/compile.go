package kernel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// unused is a third of the source, which no part of this kernel reads. The files that the build lists there (Kconfig)
// have other names.
const unused = "*/drivers/gpu/*.[ch]"

// compile unpacks the source, configures it and makes the kernel.
func compile(ctx context.Context, archive, scratch, kernel string) error {
	folder := filepath.Join(scratch, "source")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return fmt.Errorf("making a folder for the source: %w", err)
	}
	unpack := exec.CommandContext(ctx, "tar", "--extract", "--xz", "--file="+archive, "--directory="+folder,
		"--strip-components=1", "--exclude="+unused)
	if err := run(unpack); err != nil {
		return err
	}
	if err := withoutObjtool(folder); err != nil {
		return err
	}
	for _, e := range edits {
		if err := e.apply(folder); err != nil {
			return err
		}
	}
	wanted, err := fs.ReadFile(recipe, "config")
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	const list = "guest.config"
	if err := os.WriteFile(filepath.Join(folder, list), wanted, 0o644); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	if err := makeTarget(ctx, folder, "KCONFIG_ALLCONFIG="+list, "allnoconfig"); err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(folder, ".config"))
	if err != nil {
		return fmt.Errorf("reading the whole configuration: %w", err)
	}
	if err := checkConfig(wanted, got); err != nil {
		return err
	}
	if err := makeTarget(ctx, folder, fmt.Sprintf("-j%d", runtime.NumCPU()), "bzImage"); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(folder, "arch/x86/boot/bzImage"), kernel); err != nil {
		return fmt.Errorf("taking the kernel: %w", err)
	}
	return nil
}

// withoutObjtool stops the build from making objtool and from rewriting each object with it. objtool needs a library's
// headers, and its optimizations (calls and branches that the kernel patches at run time) cost time where code is
// translated.
func withoutObjtool(folder string) error {
	name := filepath.Join(folder, "arch/x86/Kconfig")
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading what x86 has: %w", err)
	}
	var kept bytes.Buffer
	found := false
	for line := range bytes.Lines(text) {
		if fields := strings.Fields(string(line)); len(fields) > 1 && fields[0] == "select" && fields[1] == "HAVE_OBJTOOL" {
			found = true
			continue
		}
		kept.Write(line)
	}
	if !found {
		return errors.New("leaving objtool out: arch/x86/Kconfig does not select HAVE_OBJTOOL")
	}
	if err := os.WriteFile(name, kept.Bytes(), 0o644); err != nil {
		return fmt.Errorf("leaving objtool out: %w", err)
	}
	return nil
}

// edit replaces a text that is in a file of the source once.
type edit struct{ file, old, new string }

var edits = []edit{
	// An empty macro that the source forgets for builds without objtool.
	{"include/linux/objtool.h", "\n.macro REACHABLE\n.endm\n", "\n.macro REACHABLE\n.endm\n.macro VALIDATE_UNRET_BEGIN\n.endm\n"},
	// Linux believes that a CPU which is not there at its start can be plugged later only if it knows the hypervisor. It knows
	// KVM, and not QEMU's emulation.
	{"arch/x86/kernel/acpi/boot.c", "return !hypervisor_is_type(X86_HYPER_NATIVE);", "return true;"},
}

func (e edit) apply(folder string) error {
	name := filepath.Join(folder, e.file)
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading the source: %w", err)
	}
	if n := bytes.Count(text, []byte(e.old)); n != 1 {
		return fmt.Errorf("changing %s: it has %q %d times instead of once", e.file, e.old, n)
	}
	if err := os.WriteFile(name, bytes.Replace(text, []byte(e.old), []byte(e.new), 1), 0o644); err != nil {
		return fmt.Errorf("changing %s: %w", e.file, err)
	}
	return nil
}

// makeTarget runs make with fixed values in place of the machine's name and the time of day.
func makeTarget(ctx context.Context, folder string, args ...string) error {
	cmd := exec.CommandContext(ctx, "make", append([]string{"--directory=" + folder, "ARCH=x86_64",
		"KBUILD_BUILD_TIMESTAMP=2000-01-01", "KBUILD_BUILD_USER=drydock", "KBUILD_BUILD_HOST=drydock", "KBUILD_BUILD_VERSION=1"}, args...)...)
	for _, variable := range os.Environ() {
		// The variables of an outer make are not for this one.
		name, _, _ := strings.Cut(variable, "=")
		if name != "MAKEFLAGS" && name != "MFLAGS" && name != "MAKELEVEL" && name != "VERSION" {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	return run(cmd)
}

// run runs a program, whose last output becomes part of the error.
func run(cmd *exec.Cmd) error {
	const most = 4 << 10
	// make starts child processes, which must end with it.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w\n%s", filepath.Base(cmd.Path), err, out[max(0, len(out)-most):])
	}
	return nil
}

// checkConfig refuses a configuration that lacks a requested option: make silently turns an option off if its
// dependency is off.
func checkConfig(wanted, got []byte) error {
	has := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(got)); lines.Scan(); {
		has[lines.Text()] = true
	}
	var missing []string
	for lines := bufio.NewScanner(bytes.NewReader(wanted)); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "CONFIG_") && !has[line] {
			missing = append(missing, line)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the configuration has not %s: this source has no such option, or it needs another one", strings.Join(missing, ", "))
	}
	return nil
}
