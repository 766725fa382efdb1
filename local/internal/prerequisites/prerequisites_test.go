package prerequisites

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryLineOfTheTableIsReadable(t *testing.T) {
	programs, err := parse(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		installed := slices.ContainsFunc(p.Purposes, func(purpose Purpose) bool {
			return purpose == Build || purpose == Run || purpose == Test || purpose == Long || purpose == Web
		})
		// The README asks for Go, because the distribution's own is too old.
		if installed && p.Package == "" && p.Name != "go" {
			t.Errorf("%s is needed and has no package", p.Name)
		}
		if !installed && p.Package != "" {
			t.Errorf("%s is not needed by Drydock, yet has the package %s", p.Name, p.Package)
		}
	}
}

func TestLinesThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"a line without who executes the program": {"nft nftables run", "lacks a column"},
		"a purpose that there is not":             {"nft nftables running the cluster", `"running" is no purpose of nft`},
		"a program with two lines":                {"nft nftables run a\nnft nftables test b", "nft has two lines"},
	} {
		if _, err := parse(test.text); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, test.says)
		}
	}
}

func TestProgramsOfAPurpose(t *testing.T) {
	for _, p := range For(Run) {
		if !slices.Contains(p.Purposes, Run) {
			t.Errorf("%s is not needed to run", p.Name)
		}
	}
	if names(For(Run, Build))["nft"] == 0 || names(For(Run, Build))["gcc"] == 0 || names(For(Run))["gcc"] != 0 {
		t.Error("nft is needed to run and gcc to build, and both for the two purposes")
	}
}

func TestMissingPackages(t *testing.T) {
	without := func(gone ...string) []Program {
		return missing(For(Run), func(name string) bool { return !slices.Contains(gone, name) })
	}
	if got := without(); len(got) != 0 {
		t.Errorf("all programs are there, yet these are missing: %v", got)
	}
	got := Packages(without("modprobe", "nft", "iptables", "iptables-save"))
	if want := []string{"iptables", "kmod", "nftables"}; !slices.Equal(got, want) {
		t.Errorf("got the packages %q, want %q: each once", got, want)
	}
	command := InstallCommand(got)
	if command[0] != "apt-get" || !slices.Equal(command[len(command)-3:], got) {
		t.Errorf("the packages are installed by %q", command)
	}
}

func TestProgramsAreFoundWhereTheyAreExecuted(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "some-program"), filepath.Join(dir, "no-program")
	for path, mode := range map[string]os.FileMode{program: 0o755, file: 0o644} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		name, path string
		want       bool
	}{
		"a program in a folder of the PATH":         {"some-program", "/nowhere:" + dir, true},
		"a program that is in none":                 {"some-program", "/nowhere", false},
		"a file that can't be executed":             {"no-program", dir, false},
		"a file that must only be there":            {file, "", true},
		"a file that is not there":                  {file + ".h", dir, false},
		"a folder of the PATH relative to anywhere": {"some-program", ".", false},
	} {
		t.Chdir(dir)
		if got := present(test.name, test.path); got != test.want {
			t.Errorf("%s: found %t, want %t", name, got, test.want)
		}
	}
}

func TestAPathIsCompletedByTheSystemsFolders(t *testing.T) {
	if got, want := CompletePath("/usr/bin:/usr/sbin"), "/usr/bin:/usr/sbin:/usr/local/sbin:/sbin"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func names(programs []Program) map[string]int {
	count := map[string]int{}
	for _, p := range programs {
		count[p.Name]++
	}
	return count
}
