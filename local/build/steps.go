package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"drydock.dev/local/internal/layout"
)

// Names of steps that other steps need.
const (
	fetchDrydock    = "fetch the modules of Drydock"
	fetchKubernetes = "fetch the modules of Kubernetes"
	fetchRuntime    = "fetch the modules of the container runtime"
	fetchMultus     = "fetch the modules of Multus"
	compileBuilder  = "compile the image builder"
	compileDrydock  = "compile Drydock"
	unpackPackages  = "fetch and unpack Debian packages"
	compileKernel   = "compile the test guest's kernel"
)

const builderProgram = "build/cache/image-builder"

var (
	drydockPrograms    = []string{"./cmd/..."}
	kubernetesPrograms = []string{"./cmd/..."}
	runtimePrograms    = []string{
		"./containerd",
		"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
		"github.com/containernetworking/plugins/plugins/main/bridge",
		"github.com/containernetworking/plugins/plugins/main/loopback",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
		"github.com/containernetworking/plugins/plugins/ipam/static",
		"github.com/containernetworking/plugins/plugins/meta/portmap",
	}
	multusPrograms = []string{"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"}
)

// runc is the only program with C. Its tags keep the standard library's packages without C, so that they and their
// importers are not compiled again.
const (
	runc     = "github.com/opencontainers/runc"
	runcTags = "seccomp,netgo,osusergo"
)

const lint = "./lint"

func steps(o options) []step {
	switch o.goal {
	case linter:
		const fetch = "fetch the modules of the linter"
		tools := filepath.Join(o.root, "tools")
		return []step{
			{name: fetch, do: command(tools, nil, list(lint))},
			{name: "compile the linter", compiles: true, needs: []string{fetch},
				do: command(tools, collector(), build(filepath.Join(o.root, "bin")+"/", "", "", lint))},
		}
	case all:
		return append(imageSteps(o), programSteps(o)...)
	default:
		return programSteps(o)
	}
}

// programSteps returns the steps in the order of compilation: first those that later steps need, the largest last.
// Modules are fetched one list after the other, so that compilation starts after the first.
func programSteps(o options) []step {
	local := filepath.Join(o.root, "local")
	runtime, multus := filepath.Join(local, "runtime"), filepath.Join(local, "multus")
	bin := filepath.Join(o.root, "bin") + "/"
	withC := append(collector(), "CGO_ENABLED=1")
	return []step{
		{name: fetchDrydock, do: command(o.root, nil, list(append(drydockPrograms, "./images/build", "./test/guest/guestd")...))},
		{name: fetchRuntime, needs: []string{fetchDrydock}, do: command(runtime, []string{"CGO_ENABLED=1"}, list(append(runtimePrograms, runc)...))},
		{name: fetchKubernetes, needs: []string{fetchRuntime}, do: command(local, nil, list(kubernetesPrograms...))},
		{name: fetchMultus, needs: []string{fetchKubernetes}, do: command(multus, nil, list(multusPrograms...))},
		{name: compileDrydock, compiles: true, needs: []string{fetchDrydock},
			do: command(o.root, collector(), build(bin, "", o.stamp, drydockPrograms...))},
		{name: "compile containerd, its shim and CNI plugins", compiles: true, needs: []string{fetchRuntime},
			do: command(runtime, collector(), build(bin, "", "", runtimePrograms...))},
		{name: "compile runc", compiles: true, needs: []string{fetchRuntime},
			do: command(runtime, withC, build(bin, runcTags, "", runc))},
		{name: "copy the definitions of the snapshot API", needs: []string{fetchKubernetes},
			do: func(ctx context.Context, _ io.Writer) (*os.ProcessState, error) {
				return nil, snapshotDefinitions(ctx, filepath.Join(bin, layout.SnapshotDefinitions))
			}},
		{name: "compile Kubernetes " + o.kubernetes + ", CoreDNS and the storage driver", compiles: true, needs: []string{fetchKubernetes},
			do: command(local, collector(), build(bin, "", kubernetesVersion(o.kubernetes)+" "+o.localStamp, kubernetesPrograms...))},
		{name: "compile Multus", compiles: true, needs: []string{fetchMultus},
			do: command(multus, collector(), build(bin, "", "", multusPrograms...))},
	}
}

// imageSteps returns the steps for the container images. They come first, because their Debian
// packages need none of our programs.
func imageSteps(o options) []step {
	builder := filepath.Join(o.root, builderProgram)
	return []step{
		{name: compileBuilder, compiles: true, needs: []string{fetchDrydock},
			do: command(o.root, collector(), build(builder, "", "", "./images/build"))},
		{name: unpackPackages, needs: []string{compileBuilder}, do: command(o.root, nil, []string{builder, "-packages"})},
		{name: compileKernel, compiles: true, needs: []string{unpackPackages}, do: command(o.root, nil, []string{builder, "-kernel"})},
		{name: "make the container images", needs: []string{compileKernel, compileDrydock}, do: command(o.root, nil, []string{builder})},
	}
}

// list returns a command that loads all imports of the packages. This makes the Go tool download
// exactly those: a module's go.mod names far more.
func list(packages ...string) []string {
	return append([]string{"go", "list", "-deps", "-f", `{{""}}`, "--"}, packages...)
}

// build returns the command that compiles programs. Settings of single programs are linker flags: a
// different compiler flag would compile everything again.
func build(out, tags, variables string, packages ...string) []string {
	return append([]string{"go", "build", "-tags=" + tags, "-ldflags=" + strings.TrimSpace("-s -w "+variables), "-o", out, "--"}, packages...)
}

func (o options) versionFlags(ctx context.Context, pkg string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(o.root, "hack", "version"), pkg)
	cmd.Env, cmd.Stderr = append(os.Environ(), "VERSION="+o.version), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking hack/version for Drydock's version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// kubernetesVersion returns the linker flags that set the version of Kubernetes, as in its own
// build.
func kubernetesVersion(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range [][2]string{
			{"gitVersion", version}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]}, {"gitTreeState", "clean"},
		} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, v[0], v[1]))
		}
	}
	return strings.Join(flags, " ")
}

// snapshotDefinitions writes the CRDs of the snapshot API, files in its module, beside the
// programs.
func snapshotDefinitions(ctx context.Context, out string) error {
	module, err := moduleField(ctx, "github.com/kubernetes-csi/external-snapshotter/client/v8", "{{.Dir}}")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(module, "config", "crd", "snapshot.storage.k8s.io_*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is none in %s", module)
	}
	if err != nil {
		return fmt.Errorf("looking for the definitions of the snapshot API: %w", err)
	}
	var all []byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a definition of the snapshot API: %w", err)
		}
		all = append(append(all, "---\n"...), data...)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("making the folder for the programs: %w", err)
	}
	if err := os.WriteFile(out, all, 0o644); err != nil {
		return fmt.Errorf("writing the definitions of the snapshot API: %w", err)
	}
	return nil
}

// command returns the work of one command. The command and its children are one process group,
// which ends when the context does.
func command(dir string, env, argv []string) work {
	return func(ctx context.Context, out io.Writer) (*os.ProcessState, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
		cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
		// The command has its own process group, which is terminated with its context.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.WaitDelay = grace
		cmd.Cancel = func() error {
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
				return os.ErrProcessDone
			}
			return nil
		}
		err := cmd.Run()
		return cmd.ProcessState, err
	}
}
