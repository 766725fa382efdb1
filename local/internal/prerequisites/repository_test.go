package prerequisites

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"drydock.dev/local/internal/prerequisites/executed"
)

const repository = "../../.."

// The folders of programs that run in the test guest, not on this machine.
var inTheGuest = []string{"test/guest/skeleton", "test/guest/guestd"}

// In the list, everywhere stands for any file, and anything for any expression.
const (
	everywhere = "any file: "
	anything   = ": anything"
)

// dynamic are the places whose executed program is known only at run time, by file and expression, with the possible
// programs; none if it is the repository's own, or one that the user names.
var dynamic = map[string][]string{
	"local/build/steps.go" + anything:                                            {"go"}, // and the builder of the images, which it has built
	"local/internal/prerequisites/script_test.go: bash":                          {"bash"},
	"bench/cluster/cluster.go: filepath.Join(c.Programs, program)":               nil,
	"bench/cluster/life.go: step":                                                nil,
	"bench/cluster/life.go: filepath.Join(programs, \"drydock\")":                nil,
	"bench/imports/ways.go: b.program":                                           nil,
	"bench/scale/nodes.go: filepath.Join(n.cluster.Programs, \"kwok\")":          nil,
	"internal/importer/worker_test.go: program":                                  nil,
	"internal/repository/webpages_test.go: script":                               nil,
	"test/mutation/gocommand.go: r.Go":                                           {"go"},
	"test/mutation/gocommand_test.go: self":                                      nil,
	"internal/handler/network/tap.go: exe":                                       nil,
	"internal/launcher/hold_test.go: buildLauncher(t)":                           nil,
	"internal/launcher/launcher_test.go: program":                                nil,
	"local/system/cluster_test.go: c.program":                                    nil,
	"local/system/cluster_test.go: program":                                      nil,
	"local/system/system_test.go: c.program":                                     nil,
	"test/e2e/cluster_test.go: binary(program)":                                  nil,
	"test/e2e/console_test.go: binary(\"virtctl\")":                              nil,
	"test/e2e/consolelog_test.go: binary(\"drydock\")":                           nil,
	"test/e2e/guestfs_test.go: binary(\"virtctl\")":                              nil,
	"test/e2e/hotplug_node_test.go: binary(\"drydock\")":                         nil,
	"test/e2e/maintenance_examples_test.go: binary(\"virtctl\")":                 nil,
	"test/e2e/network_test.go: binary(\"virtctl\")":                              nil,
	"test/machine/machine_test.go: launcherProgram":                              nil,
	"images/debian/debian.go: t.Path(name)":                                      nil,
	"internal/virtctl/vnc/vnc.go: o.viewer":                                      nil,
	"internal/virtctl/web/browser.go: command[0]":                                {"xdg-open", "open", "rundll32"},
	"internal/virtctl/vnc/vnc.go: v.program":                                     nil,
	"internal/virtctl/ssh/ssh.go: path":                                          nil,
	"internal/virtctl/script_test.go: \"trap '' HUP; \" + command":               nil,
	"local/internal/prerequisites/prerequisites.go: filepath.Join(folder, name)": nil,
	"images/qemutree/qemutree_test.go" + anything:                                nil, // the tree's own
	"images/build/build_test.go: test.command[0]":                                nil, // in the image
	"images/build/build_test.go: command[0]":                                     nil, // in the image
	"internal/importer/unpack/unpack_test.go: program":                           {"gzip", "xz", "zstd"},
	"internal/handler/driver/standin_test.go: qemu-system-x86_64":                nil, // the images' QEMU, in the pod
	"internal/launcher/bootprobe/bootprobe.go: p.QEMU":                           nil, // the image's
	"test/e2e/placement_test.go: args[0]":                                        {"gzip"},
	"internal/contracts/version/version_test.go: version":                        nil,
	"release/system_test.go: drydock":                                            nil,
	"local/internal/cli/run.go: args[0]":                                         {"apt-get"},
	"local/internal/cli/run.go: self":                                            nil,
	"local/internal/cli/run.go: s.parts.Virtctl":                                 nil,
	"local/internal/network/firewall_test.go: policies":                          {"iptables", "nft"},
	"local/internal/network/firewall_test.go: test.before":                       {"iptables", "nft"},
	"local/internal/network/firewall_test.go: test.after":                        {"iptables", "nft"},
	"test/upstreamsuite/cluster.go: c.drydock":                                   nil,
	"test/upstreamsuite/cluster.go: suite":                                       nil, // the compiled suite
	"test/guest/disk.go: filepath.Join(qemu, \"bin\", \"qemu-img\")":             nil, // the images' QEMU
	"test/guest/disk.go: step[0]":                                                {"mformat", "mmd", "mcopy"},
	"test/guest/owner.go: loader":                                                nil, // from a folder of Debian packages
}

func sources(t *testing.T) (packages map[string][]string, scripts []string) {
	t.Helper()
	packages = map[string][]string{}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(repository, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "bin" || name == "build" || slices.Contains(inTheGuest, name) || entry.Name() == "testdata" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.Type().IsRegular():
		case filepath.Ext(name) == ".go":
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], path)
		case isScript(path):
			scripts = append(scripts, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages, scripts
}

func isScript(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	begin := make([]byte, 64)
	n, _ := file.Read(begin) // an empty file is no script
	line, _, _ := strings.Cut(string(begin[:n]), "\n")
	return strings.HasPrefix(line, "#!") && strings.HasSuffix(line, "sh")
}

func TestTheTableHasAllThatTheRepositoryExecutes(t *testing.T) {
	check := checker(t)
	packages, scripts := sources(t)
	used := map[string]bool{}
	for _, files := range packages {
		calls, err := executed.Go(files)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			file, _, _ := strings.Cut(strings.TrimPrefix(call.Where, repository+"/"), ":")
			place, listed := listedPlace(file, call)
			switch {
			case listed:
				used[place] = true
				for _, program := range dynamic[place] {
					check(call.Where, program)
				}
			case call.Program != "":
				check(call.Where, call.Program)
			default:
				t.Errorf("%s executes what only the running program knows: name the programs in the list of this test, under %q",
					call.Where, file+": "+call.Expression)
			}
		}
	}
	for place := range dynamic {
		if !used[place] {
			t.Errorf("%s: nothing is executed there any more: strike it from the list", place)
		}
	}
	groups, err := os.ReadFile(filepath.Join(repository, "hack/groups"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		// Some scripts source it.
		checkScript(t, path, func(script string) ([]string, error) { return executed.Shell(string(groups) + script) }, check)
	}
	checkScript(t, filepath.Join(repository, "Makefile"), executed.Makefile, check)
	if len(packages) < 50 || len(scripts) < 5 {
		t.Errorf("only %d packages and %d scripts were found: the test looks in the wrong place", len(packages), len(scripts))
	}
}

// checker returns a function that judges a place where a program of this machine is executed.
func checker(t *testing.T) func(where, program string) {
	known, inside := names(All()), names(For(Inside))
	return func(where, program string) {
		where = strings.TrimPrefix(where, repository+"/")
		if known[program] == 0 {
			t.Errorf("%s executes %s, which is not in local/internal/prerequisites/programs.txt: add it with its package, purpose and user", where, program)
		}
		if inside[program] != 0 && strings.Contains(where, "_test.go:") {
			t.Errorf("%s executes the machine's %s: take the images' (shipped.Program)", where, program)
		}
	}
}

func listedPlace(file string, call executed.Call) (place string, listed bool) {
	places := []string{file + ": " + call.Program + call.Expression}
	if call.Program == "" {
		places = append(places, everywhere+call.Expression, file+anything)
	}
	for _, place := range places {
		if _, listed := dynamic[place]; listed {
			return place, true
		}
	}
	return "", false
}

func checkScript(t *testing.T, path string, read func(string) ([]string, error), check func(where, program string)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	programs, err := read(string(text))
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	for _, program := range programs {
		check(path, program)
	}
}
