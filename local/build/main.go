// Command build compiles everything that an embedded cluster runs and puts it
// into one folder: go run ./build -o ../bin
//
// There are two Go modules behind it. containerd and Kubernetes ask for
// different versions of the CRI API and do not compile together, so that
// containerd lives, with the other programs that Drydock does not link, in
// the module runtime.
//
// Everything but runc is built without cgo: CoreDNS and pause are the only
// program in their image and must not need a C library, and the others then
// share what was compiled for these.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"drydock.dev/local/internal/layout"
)

// step is one call of go build.
type step struct {
	name     string
	dir      string
	cgo      string
	tags     string
	ldflags  string
	packages []string
}

func main() {
	out := flag.String("o", "../bin", "folder for the programs, relative to the module local")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n", err)
		os.Exit(1)
	}
}

func run(out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("finding the folder for the programs: %w", err)
	}
	if err := checkTools(); err != nil {
		return err
	}
	version, err := output("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return fmt.Errorf("asking for the version of Kubernetes: %w", err)
	}
	for _, s := range steps(version) {
		began := time.Now()
		args := append([]string{"build", "-tags=" + s.tags, "-ldflags=-s -w " + s.ldflags, "-o", out + "/"}, s.packages...)
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+s.cgo)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building %s: %w", s.name, err)
		}
		fmt.Printf("%-40s %5.1fs\n", s.name, time.Since(began).Seconds())
	}
	return snapshotDefinitions(out)
}

// snapshotDefinitions puts the definitions of the snapshot API, which its
// module carries as files, beside the programs.
func snapshotDefinitions(out string) error {
	module, err := output("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	if err != nil {
		return fmt.Errorf("looking for the module of the snapshot API: %w", err)
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
	if err := os.WriteFile(filepath.Join(out, layout.SnapshotDefinitions), all, 0o644); err != nil {
		return fmt.Errorf("writing the definitions of the snapshot API: %w", err)
	}
	return nil
}

func steps(version string) []step {
	return []step{
		{name: "runc", dir: "runtime", cgo: "1", tags: "seccomp", packages: []string{"github.com/opencontainers/runc"}},
		{name: "containerd, CNI plugins and CoreDNS", dir: "runtime", cgo: "0", packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containernetworking/plugins/plugins/main/bridge",
			"github.com/containernetworking/plugins/plugins/main/loopback",
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
			"github.com/containernetworking/plugins/plugins/meta/portmap",
			"github.com/coredns/coredns",
		}},
		{name: "pause", dir: ".", cgo: "0", packages: []string{"./cmd/pause"}},
		{name: "storage driver", dir: ".", cgo: "0", packages: []string{"./cmd/drydock-storage", "./cmd/drydock-csi-node"}},
		{name: "drydock with Kubernetes " + version, dir: ".", cgo: "0", ldflags: kubernetesVersion(version), packages: []string{"./cmd/drydock"}},
	}
}

// kubernetesVersion tells Kubernetes which version it is, as its own build does.
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

// checkTools names what runc needs: its first steps are written in C, and
// seccomp profiles are made with libseccomp.
func checkTools() error {
	var missing []string
	if _, err := exec.LookPath("gcc"); err != nil {
		missing = append(missing, "gcc", "libc6-dev")
	}
	if _, err := exec.LookPath("pkg-config"); err != nil {
		missing = append(missing, "pkg-config")
	}
	if _, err := os.Stat("/usr/include/seccomp.h"); err != nil {
		missing = append(missing, "libseccomp-dev")
	}
	if len(missing) > 0 {
		return errors.New("runc can't be built yet: apt-get install " + strings.Join(missing, " "))
	}
	return nil
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out)), err
}
