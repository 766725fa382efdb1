package launcher

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/layout"
	"drydock.dev/drydock/internal/nodeprobe"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// probePatience is how long a guest has to run its first instructions.
const probePatience = 20 * time.Second

// Emulated and hardware-assisted, as -accel names them.
const (
	accelTCG = "tcg"
	accelKVM = "kvm"
)

// probeNodeMain is `virt-launcher probe-node`: it starts QEMU once with KVM
// and once without, and writes what it learns. A device node says little:
// /dev/kvm can be there and even make a machine, and QEMU still abort at its
// first instruction.
func probeNodeMain(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("probe-node", flag.ContinueOnError)
	out := flags.String("out", "", "file to write the result to; standard output if empty")
	program := flags.String("qemu", layout.QEMUBinary, "QEMU's program")
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	result, err := probeNode(ctx, *program)
	if err != nil {
		return exitFailed, err
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return exitFailed, fmt.Errorf("encoding the result: %w", err)
	}
	text = append(text, '\n')
	if *out == "" {
		_, err = os.Stdout.Write(text)
	} else {
		err = replaceFile(*out, text)
	}
	if err != nil {
		return exitFailed, fmt.Errorf("writing the result: %w", err)
	}
	return exitOK, nil
}

func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func probeNode(ctx context.Context, program string) (nodeprobe.Result, error) {
	found, err := probeQEMU(ctx, program, accelTCG)
	if err != nil {
		return nodeprobe.Result{}, fmt.Errorf("running QEMU without KVM: %w", err)
	}
	result := nodeprobe.Result{QEMU: found.version, MachineTypes: found.machines}
	withKVM, err := probeQEMU(ctx, program, accelKVM)
	if err != nil {
		result.KVM.Reason = err.Error()
		result.CPUModels = found.models
		return result, nil
	}
	result.KVM.Usable = true
	result.CPUModels = withKVM.models
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nodeprobe.Result{}, fmt.Errorf("reading the host's CPU: %w", err)
	}
	result.HostModel = hostModel(string(cpuinfo), withKVM.models)
	return result, nil
}

// capabilities are what one QEMU says of itself.
type capabilities struct {
	version  string
	models   []string
	machines []string
}

// probeQEMU runs a machine until its BIOS has said something, which proves
// that it executes instructions, and asks it what it has.
func probeQEMU(ctx context.Context, program, accel string) (capabilities, error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	ours, theirs, err := socketPair()
	if err != nil {
		return capabilities{}, err
	}
	defer theirs.Close()
	last := &tail{also: io.Discard}
	cmd := exec.CommandContext(ctx, program,
		"-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accel, "-cpu", "max", "-m", "32", "-display", "none",
		"-chardev", "stdio,id=bios,signal=off", "-device", "isa-debugcon,iobase=0x402,chardev=bios",
		"-chardev", "socket,id=qmp,fd="+strconv.Itoa(monitorFD), "-mon", "chardev=qmp,mode=control")
	cmd.Stderr = last
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	bios, err := cmd.StdoutPipe()
	if err != nil {
		_ = ours.Close()
		return capabilities{}, fmt.Errorf("reading from QEMU: %w", err)
	}
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return capabilities{}, fmt.Errorf("starting QEMU: %w", err)
	}
	_ = theirs.Close()
	found, err := interview(ctx, ours, bios)
	cancel()
	// It was killed, by us or by its own fault; what matters is in err.
	_ = cmd.Wait()
	if err != nil && last.sentence() != "" {
		err = fmt.Errorf("%w: %s", err, last.sentence())
	}
	return found, err
}

func interview(ctx context.Context, monitor io.ReadWriteCloser, bios io.Reader) (capabilities, error) {
	client, err := qmp.New(ctx, monitor, nil)
	if err != nil {
		return capabilities{}, fmt.Errorf("QEMU does not start: %w", err)
	}
	defer func() { _ = client.Close() }()
	if _, err := io.ReadFull(bios, make([]byte, 1)); err != nil {
		return capabilities{}, fmt.Errorf("the guest does not run: %w", err)
	}
	return ask(ctx, client)
}

func ask(ctx context.Context, client *qmp.Client) (capabilities, error) {
	var version struct {
		QEMU struct{ Major, Minor, Micro int } `json:"qemu"`
	}
	var models []struct {
		Name        string   `json:"name"`
		Unavailable []string `json:"unavailable-features"`
		Static      bool     `json:"static"`
		Deprecated  bool     `json:"deprecated"`
	}
	var machines []struct {
		Name  string `json:"name"`
		Alias string `json:"alias"`
	}
	for _, question := range []struct {
		command string
		answer  any
	}{{"query-version", &version}, {"query-cpu-definitions", &models}, {"query-machines", &machines}} {
		if err := client.Execute(ctx, question.command, nil, question.answer); err != nil {
			return capabilities{}, err
		}
	}
	v := version.QEMU
	found := capabilities{version: fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)}
	for _, m := range models {
		if len(m.Unavailable) == 0 && isNamedModel(m.Name) {
			found.models = append(found.models, m.Name)
		}
	}
	for _, m := range machines {
		for _, name := range []string{m.Name, m.Alias} {
			if name == "q35" || strings.HasPrefix(name, "pc-q35-") {
				found.machines = append(found.machines, name)
			}
		}
	}
	slices.Sort(found.models)
	slices.Sort(found.machines)
	return found, nil
}

// isNamedModel leaves out what is no model (the host itself, everything,
// nothing) and the versions of a model, such as Haswell-v2: the name without
// one is what users say.
func isNamedModel(name string) bool {
	switch name {
	case "host", "max", "base":
		return false
	}
	i := strings.LastIndex(name, "-v")
	if i < 0 {
		return true
	}
	_, err := strconv.Atoi(name[i+len("-v"):])
	return err != nil
}

// generations are each vendor's models, oldest first. A model has all that
// those before it have, nearly.
var generations = map[string][]string{
	"GenuineIntel": {
		"Conroe", "Penryn", "Nehalem", "Westmere", "SandyBridge", "IvyBridge", "Haswell-noTSX", "Haswell",
		"Broadwell-noTSX", "Broadwell", "Skylake-Client", "Skylake-Server", "Cascadelake-Server", "Cooperlake",
		"Icelake-Server", "SapphireRapids", "GraniteRapids",
	},
	"AuthenticAMD": {
		"Opteron_G1", "Opteron_G2", "Opteron_G3", "Opteron_G4", "Opteron_G5", "EPYC", "EPYC-Rome", "EPYC-Milan", "EPYC-Genoa",
	},
	"HygonGenuine": {"Dhyana"},
}

// hostModel is the newest of the usable models of the host's vendor.
func hostModel(cpuinfo string, usable []string) string {
	var vendor string
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "vendor_id" {
			vendor = strings.TrimSpace(value)
			break
		}
	}
	model := ""
	for _, m := range generations[vendor] {
		if slices.Contains(usable, m) {
			model = m
		}
	}
	return model
}
