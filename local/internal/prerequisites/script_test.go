package prerequisites

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The script runs before Go compiles anything, so it reads the table itself. On a nearly empty machine it must find the
// same missing programs as this package, and name all of them at once.
func TestTheScriptInstallsWhatTheTableSays(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	for name, text := range map[string]string{
		"id":      "echo 0",
		"env":     `[ "$1" != DEBIAN_FRONTEND=noninteractive ] || shift; exec "$@"`,
		"apt-get": "exit 100", // there is no network
		"dirname": `echo "${1%/*}"`,
	} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("#!"+bash+"\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(bash, "hack/prerequisites", "build", "run")
	cmd.Dir, cmd.Env = repository, []string{"PATH=" + path}
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("nothing could be installed, and the script succeeds: %s", out)
	}
	_, list, _ := strings.Cut(string(out), "installing: ")
	list, _, _ = strings.Cut(list, "\n")
	got := strings.Fields(list)
	slices.Sort(got)
	want := Packages(missing(For(Build, Run), func(name string) bool { return present(name, path) }))
	if !slices.Equal(got, want) {
		t.Errorf("the script installs\n%q,\nwant\n%q", got, want)
	}
	for _, text := range []string{"missing: these packages could not be installed: ", "missing: Go is not on the PATH"} {
		if !strings.Contains(string(out), text) {
			t.Errorf("the script does not say %q:\n%s", text, out)
		}
	}
}
