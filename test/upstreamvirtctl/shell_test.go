package upstreamvirtctl

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds the wait for one line. It is generous: guests are emulated and share few CPUs.
const patience = 5 * time.Minute

// pause is the time between two tries.
const pause = 200 * time.Millisecond

type shell struct {
	dir string
	env []string
}

// The namespace is deleted with the test.
func newShell(t *testing.T) *shell {
	t.Helper()
	config := os.Getenv("KUBECONFIG")
	if config == "" {
		t.Fatal("KUBECONFIG is not set: this test needs a cluster with Drydock; make test-upstream-virtctl starts one")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{dir: t.TempDir()}
	programs, own := filepath.Join(s.dir, "bin"), filepath.Join(s.dir, "kubeconfig")
	s.env = append(os.Environ(), "HOME="+s.dir, "PATH="+programs+":"+os.Getenv("PATH"), "KUBECONFIG="+own,
		"TESTDATA="+repository+"/test/upstreamvirtctl/testdata",
		"SSH=-i key --known-hosts=/dev/null -t -oStrictHostKeyChecking=no -t -oBatchMode=yes -t -oConnectTimeout=20 -t -oServerAliveInterval=5")
	buildVirtctl(t, filepath.Join(programs, "virtctl"))
	// usbredir looks for the program of the device before it asks the server.
	writeScript(t, filepath.Join(programs, "usbredirect"), "exit 1")
	writeScript(t, filepath.Join(programs, "kubectl"), "exec "+repository+`/bin/drydock kubectl "$@" --kubeconfig=`+own)

	namespace := "upstream-virtctl-" + strings.ToLower(rand.Text()[:5])
	s.must(t, "cat "+config+" >kubeconfig && kubectl create namespace "+namespace+" && kubectl config set-context --current --namespace="+namespace)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := s.run(context.Background(), "kubectl get vmi -o yaml; kubectl get events --sort-by=.lastTimestamp; kubectl get vm,vmi,vmim,dv,pvc,pods -o wide")
			t.Logf("what the namespace has (error: %v):\n%s", err, out)
		}
		if out, err := s.run(context.Background(), "kubectl delete namespace "+namespace); err != nil {
			t.Errorf("deleting the namespace %s: %v\n%s", namespace, err, out)
		}
	})
	return s
}

// go.mod pins the release. The linker sets its version, as in the project's own binaries.
func buildVirtctl(t *testing.T, path string) {
	t.Helper()
	release, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "kubevirt.io/kubevirt").Output()
	if err != nil {
		t.Fatalf("asking go for the release: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path,
		"-ldflags=-X kubevirt.io/client-go/version.gitVersion="+strings.TrimSpace(string(release)), "kubevirt.io/kubevirt/cmd/virtctl").CombinedOutput()
	if err != nil {
		t.Fatalf("building virtctl: %v\n%s", err, out)
	}
}

func writeScript(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// command is a line that ends with ctx, together with its child processes.
func (s *shell) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// said is a line's output: its answer on standard output, and its warnings and waits on standard error.
type said struct{ answer, beside string }

// String returns the whole output.
func (s said) String() string { return s.answer + s.beside }

func (s *shell) run(ctx context.Context, line string) (said, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var answer, beside strings.Builder
	command := s.command(ctx, line)
	command.Stdout, command.Stderr = &answer, &beside
	err := command.Run()
	return said{answer.String(), beside.String()}, err
}

func (s *shell) must(t *testing.T, line string) {
	t.Helper()
	if out, err := s.run(t.Context(), line); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// program is an interactive line.
type program struct {
	*exec.Cmd
	keyboard io.Writer
	screen   io.Reader
	printed  string
}

func (s *shell) start(t *testing.T, line string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	p := &program{Cmd: s.command(ctx, line)}
	t.Cleanup(func() {
		cancel()
		_ = p.Wait() // the error says that the line was killed, or that it ended before
	})
	var err error
	if p.keyboard, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.screen, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	p.Stderr = p.Stdout
	if err := p.Start(); err != nil {
		t.Fatalf("starting %s: %v", line, err)
	}
	return p
}

// The result is the expression's groups.
func (p *program) await(t *testing.T, expression string) []string {
	t.Helper()
	pattern, buffer := regexp.MustCompile(expression), make([]byte, 4096)
	for {
		if at := pattern.FindStringIndex(p.printed); at != nil {
			groups := pattern.FindStringSubmatch(p.printed)
			p.printed = p.printed[at[1]:]
			return groups
		}
		n, err := p.screen.Read(buffer)
		if err != nil {
			t.Fatalf("it ended before it printed %q (%v):\n%s", expression, err, p.printed)
		}
		p.printed += string(buffer[:n])
	}
}

func (p *program) types(t *testing.T, text string) {
	t.Helper()
	if _, err := fmt.Fprint(p.keyboard, text); err != nil {
		t.Fatalf("typing %q: %v", text, err)
	}
}
