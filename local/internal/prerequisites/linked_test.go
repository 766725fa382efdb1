package prerequisites

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"drydock.dev/local/internal/prerequisites/executed"
)

type linked struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Standard   bool
	Module     *struct{ Main bool }
}

func ofTheBuild(t *testing.T, dir string, cgo string, packages ...string) []linked {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-tags=seccomp", "-json=ImportPath,Dir,GoFiles,CgoFiles,Standard,Module"}, packages...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED="+cgo)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing what %q link: %v\n%s", packages, err, said.String())
	}
	var all []linked
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p linked
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if !p.Standard && (p.Module == nil || !p.Module.Main) {
			all = append(all, p)
		}
	}
}

var foreignMain = regexp.MustCompile(`"(github\.com/(?:containerd|containernetworking|opencontainers|coredns)/[^"]+)"`)

func foreignMains(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "local", "build", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("looking for the build's source: %q, %v", files, err)
	}
	var mains []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range foreignMain.FindAllStringSubmatch(string(text), -1) {
			mains = append(mains, match[1])
		}
	}
	slices.Sort(mains)
	return slices.Compact(mains)
}

// byName are the packages whose executed programs are known only at run time, with their names here.
var byName = map[string]string{
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2": "itself, runc beside it, and loggers that a pod can't name",
	"github.com/containerd/containerd/v2/core/mount":                  "mount helpers of other snapshotters than overlayfs",
	"github.com/containerd/containerd/v2/core/runtime/v2":             "the shim beside containerd",
	"github.com/containerd/containerd/v2/pkg/archive/compression":     "igzip and unpigz",
	"github.com/containerd/go-runc":                                   "runc beside the shim",
	"github.com/containerd/nri":                                       "plugins of NRI: the folder has none",
	"github.com/checkpoint-restore/go-criu/v7":                        "criu",
	"github.com/coreos/go-iptables/iptables":                          "iptables and ip6tables",
	"github.com/google/cadvisor":                                      "dmsetup and thin_ls: no storage is on a device mapper",
	"github.com/google/gnostic-models":                                "extensions of a compiler of OpenAPI, which nobody calls",
	"github.com/mattn/go-shellwords":                                  "the shell, for commands within a line: switched on by nobody",
	"github.com/mistifyio/go-zfs":                                     "zfs: no storage is on it",
	"github.com/opencontainers/runc/libcontainer":                     "itself, and the container's own program",
	"k8s.io/client-go/plugin/pkg/client/auth/exec":                    "a credential helper that a user's kubeconfig names",
	"k8s.io/kubectl":                                                  "diff, an editor and plugins, as the user of kubectl has them",
	"k8s.io/kubernetes/pkg/credentialprovider/plugin":                 "credential helpers: none is configured",
	"k8s.io/kubernetes/pkg/kubelet":                                   "getsubids, for user namespaces of other users than root; journalctl",
	"k8s.io/kubernetes/pkg/util/iptables":                             "iptables, ip6tables and their -save and -restore",
	"k8s.io/kubernetes/pkg/volume/util/fsquota":                       "xfs_quota and the like: quotas of the file system are off",
	"k8s.io/mount-utils":                                              "mkfs.ext4; others for volumes of other drivers",
	"sigs.k8s.io/knftables":                                           "nft",
	"sigs.k8s.io/kustomize":                                           "git, helm and plugins, as the user of kubectl kustomize asks",
}

func TestTheTableHasAllThatLinkedCodeExecutes(t *testing.T) {
	if testing.Short() {
		t.Skip("reads all the code that the embedded Kubernetes links")
	}
	packages := ofTheBuild(t, "../..", "0", "./cmd/...")
	packages = append(packages, ofTheBuild(t, "../../runtime", "1", append(foreignMains(t), "./...")...)...)
	packages = append(packages, ofTheBuild(t, "../../multus", "0", "tool")...)
	known, used, called := names(All()), map[string]bool{}, map[string]bool{}
	for _, p := range packages {
		for _, call := range executedBy(t, p) {
			called[call.Program] = true
			switch {
			case call.Program != "" && known[call.Program] == 0:
				t.Errorf("%s (%s) executes %s, which is not in programs.txt: add it, with the purpose never and the reason if it can't come to that",
					p.ImportPath, filepath.Base(call.Where), call.Program)
			case call.Program == "" && !covered(p.ImportPath, used):
				t.Errorf("%s (%s) executes what only the running program knows, %s: say in the list of this test what that is",
					p.ImportPath, filepath.Base(call.Where), call.Expression)
			}
		}
	}
	for prefix := range byName {
		if !used[prefix] {
			t.Errorf("%s is in the list of this test and executes nothing of the kind: take it out", prefix)
		}
	}
	for _, program := range For(Never) {
		if !called[program.Name] {
			t.Errorf("%s is in programs.txt as what linked code executes in no case here, and no linked code does at all: take it out", program.Name)
		}
	}
	if len(packages) < 1000 {
		t.Errorf("only %d packages are linked: the test looks in the wrong place", len(packages))
	}
}

// covered reports whether byName has a package or a prefix of its path, and records which.
func covered(path string, used map[string]bool) bool {
	for prefix := range byName {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			used[prefix] = true
			return true
		}
	}
	return false
}

func executedBy(t *testing.T, p linked) []executed.Call {
	t.Helper()
	var files []string
	executes := false
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		file := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		executes = executes || executesSomething.Match(text)
	}
	if !executes {
		return nil
	}
	calls, err := executed.Go(files)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

var executesSomething = regexp.MustCompile(`(?i)exec(utor|er)?\.(Command|CommandContext|LookPath)\(`)
