package launcher

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// probeNodeMain is `virt-launcher probe-node`: it runs a guest with and without KVM. The device /dev/kvm proves nothing:
// the guest may stop in its first instructions, or crawl.
func probeNodeMain(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("probe-node", flag.ContinueOnError)
	out := flags.String("out", "", "file to write the result to; standard output if empty")
	program := flags.String("qemu", layout.QEMUBinary, "QEMU's program")
	root := flags.String("root", "", "folder that has the firmware, at its path in the image")
	accel := flags.String("accel", os.Getenv("DRYDOCK_ACCEL"),
		"the only accelerator that guests may have here, kvm or tcg; the probe chooses if empty (environment DRYDOCK_ACCEL)")
	log := lineLog{w: os.Stderr}
	flags.Var(&log.format, logline.Flag, logline.Usage)
	stay := flags.Bool("hold", false, "stay until told to end, as a container beside virt-handler has to")
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	if *accel != "" && *accel != nodeprobe.KVM && *accel != nodeprobe.TCG {
		return exitFailed, fmt.Errorf("the accelerator (--accel, DRYDOCK_ACCEL) is %q; it must be kvm, tcg or empty", *accel)
	}
	prober := prober{qemu: *program, requested: *accel, device: layout.KVMDevice, root: *root}
	probe := func() (nodeprobe.Result, error) {
		result := prober.probe(ctx)
		return result, writeProbe(log, result, *out)
	}
	if !*stay {
		if _, err := probe(); err != nil {
			return exitFailed, err
		}
		return exitOK, nil
	}
	if err := probeUntilJudged(ctx, log, probe); err != nil {
		return exitFailed, err
	}
	debug.FreeOSMemory()
	return hold(ctx, log)
}

const (
	starvedPause = 2 * time.Minute
	// kvmProbes bounds the probes of a node that can emulate: KVM may hang without using a CPU.
	kvmProbes = 30
)

// probeUntilJudged probes until no guest was Starved, or ctx ends.
func probeUntilJudged(ctx context.Context, log lineLog, probe func() (nodeprobe.Result, error)) error {
	for probes := 1; ; probes++ {
		result, err := probe()
		if err != nil || !result.Starved || result.Use() != "" && probes >= kvmProbes {
			return err
		}
		log.printf("the guest got too little of the CPUs; the node is probed again in %v", starvedPause)
		select {
		case <-time.After(starvedPause):
		case <-ctx.Done():
			return nil
		}
	}
}

func writeProbe(log lineLog, result nodeprobe.Result, file string) error {
	if result.KVM.Usable {
		cpuinfo, err := os.ReadFile("/proc/cpuinfo")
		if err != nil {
			return fmt.Errorf("reading the host's CPU: %w", err)
		}
		result.HostModel = hostModel(string(cpuinfo), result.CPUModels)
	}
	log.printf("%s", summary(result))
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	text = append(text, '\n')
	if file == "" {
		_, err = os.Stdout.Write(text)
	} else {
		err = replaceFile(file, text)
	}
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
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

type capabilities struct {
	version, build   string
	models, machines []string
	// deprecated are among machines.
	deprecated []string
}

type machineInfo struct {
	Name       string `json:"name"`
	Alias      string `json:"alias"`
	Deprecated bool   `json:"deprecated"`
}

func queryCapabilities(ctx context.Context, client *qmp.Client) (capabilities, error) {
	var version struct {
		QEMU    struct{ Major, Minor, Micro int } `json:"qemu"`
		Package string                            `json:"package"`
	}
	var models []struct {
		Name        string   `json:"name"`
		Unavailable []string `json:"unavailable-features"`
		Static      bool     `json:"static"`
		Deprecated  bool     `json:"deprecated"`
	}
	var machines []machineInfo
	for _, question := range []struct {
		command string
		answer  any
	}{{"query-version", &version}, {"query-cpu-definitions", &models}, {"query-machines", &machines}} {
		if err := client.Execute(ctx, question.command, nil, question.answer); err != nil {
			return capabilities{}, err
		}
	}
	v := version.QEMU
	found := capabilities{version: fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro), build: version.Package}
	for _, m := range models {
		if len(m.Unavailable) == 0 && isNamedModel(m.Name) {
			found.models = append(found.models, m.Name)
		}
	}
	slices.Sort(found.models)
	found.machines, found.deprecated = machineTypes(machines)
	return found, nil
}

// machineTypes returns the q35 machines with their aliases, and the deprecated ones among them, sorted.
func machineTypes(machines []machineInfo) (all, deprecated []string) {
	for _, m := range machines {
		for _, name := range []string{m.Name, m.Alias} {
			if name != "q35" && !strings.HasPrefix(name, "pc-q35-") {
				continue
			}
			all = append(all, name)
			if m.Deprecated {
				deprecated = append(deprecated, name)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(deprecated)
	return all, deprecated
}

// isNamedModel excludes host, max, base and versions such as Haswell-v2: users write the name without one.
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

// Each vendor's models are oldest first. They have almost all features of the earlier ones.
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
