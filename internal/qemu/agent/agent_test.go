package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/test/shipped"
)

const patience = 4 * time.Minute

// Both pass the same tests.
var agents = map[string]func(*testing.T) string{"qemu-ga": realAgent, "fake": fakeAgent}

// These would affect the machine that runs the test.
const dangerous = "guest-shutdown,guest-fsfreeze-freeze,guest-fsfreeze-freeze-list,guest-suspend-disk," +
	"guest-suspend-ram,guest-suspend-hybrid,guest-set-user-password,guest-set-time,guest-fstrim"

// realAgent runs Debian's guest agent here instead of in a guest.
func realAgent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "agent.sock")
	cmd := exec.Command(shipped.Program(t, "qemu-ga"), "--method=unix-listen", "--path="+socket, "--statedir="+dir,
		"--pidfile="+filepath.Join(dir, "pid"), "--block-rpcs="+dangerous)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for deadline, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); ; <-tick {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatal("qemu-ga does not listen")
		}
	}
}

// listen serves connections one after another, as QEMU does for the port.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

type request struct {
	Execute   string
	Arguments struct {
		ID int64
	}
	line string
}

func requests(conn net.Conn, answer func(request) string) {
	reader := bufio.NewReader(conn)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		var r request
		text := line[strings.LastIndexByte(line, 0xff)+1:]
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			continue
		}
		if r.Execute == "guest-sync-delimited" {
			fmt.Fprintf(conn, "\xff{\"return\": %d}\n", r.Arguments.ID)
			continue
		}
		r.line = strings.TrimSpace(text)
		if text := answer(r); text != "" {
			fmt.Fprintln(conn, text)
		}
	}
}

func fakeAgent(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	noUser := `{"error": {"class": "GenericError", "desc": "there is no such user"}}`
	answers := map[string]string{
		"guest-ping":                    `{"return": {}}`,
		"guest-info":                    `{"return": {"version": "7.2.22", "supported_commands": [{"enabled": true, "name": "guest-ping", "success-response": true}]}}`,
		"guest-get-osinfo":              `{"return": {"id": "debian", "kernel-release": "6.1", "machine": "x86_64", "pretty-name": "Debian"}}`,
		"guest-get-host-name":           fmt.Sprintf(`{"return": {"host-name": %q}}`, host),
		"guest-network-get-interfaces":  `{"return": [{"name": "lo", "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}], "hardware-address": "00:00:00:00:00:00"}]}`,
		"guest-get-users":               `{"return": []}`,
		"guest-get-fsinfo":              `{"return": []}`,
		"guest-get-vcpus":               `{"return": [{"logical-id": 0, "online": true, "can-offline": false}]}`,
		"guest-get-timezone":            `{"return": {"zone": "UTC", "offset": 0}}`,
		"guest-fsfreeze-status":         `{"return": "thawed"}`,
		"guest-exec":                    `{"return": {"pid": 7}}`,
		"guest-ssh-add-authorized-keys": noUser,
		"guest-set-user-password":       noUser,
		"guest-shutdown":                `{"error": {"class": "CommandNotFound", "desc": "Command guest-shutdown has been disabled"}}`,
	}
	asked := 0
	return listen(t, func(conn net.Conn) {
		requests(conn, func(r request) string {
			if r.Execute == "guest-exec-status" {
				if asked++; asked%2 == 1 {
					return `{"return": {"exited": false}}`
				}
				return `{"return": {"exitcode": 3, "exited": true, "out-data": "b3V0", "err-data": "ZXJy"}}`
			}
			if answer, known := answers[r.Execute]; known {
				return answer
			}
			return fmt.Sprintf(`{"error": {"class": "CommandNotFound", "desc": "The command %s has not been found"}}`, r.Execute)
		})
	})
}

func dial(t *testing.T, socket string) *agent.Client {
	t.Helper()
	c, err := agent.Dial(t.Context(), socket)
	// The socket exists a moment before the agent listens.
	tick := time.Tick(5 * time.Millisecond)
	for deadline := time.Now().Add(patience); errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(deadline); {
		<-tick
		c, err = agent.Dial(t.Context(), socket)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestConformance(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, serve := range agents {
		t.Run(name, func(t *testing.T) {
			socket := serve(t)
			c := dial(t, socket)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			identity(ctx, t, c, host)
			if zone, err := c.Timezone(ctx); err != nil || zone.Zone == "" {
				t.Errorf("guest-get-timezone: %+v, %v", zone, err)
			}
			if cpus, err := c.VCPUs(ctx); err != nil || len(cpus) == 0 || !cpus[0].Online {
				t.Errorf("guest-get-vcpus: %+v, %v", cpus, err)
			}
			if _, err := c.Users(ctx); err != nil {
				t.Errorf("guest-get-users: %v", err)
			}
			if _, err := c.Filesystems(ctx); err != nil {
				t.Errorf("guest-get-fsinfo: %v", err)
			}
			if status, err := c.FreezeStatus(ctx); err != nil || status != "thawed" {
				t.Errorf("guest-fsfreeze-status: %q, %v", status, err)
			}
			loopback(ctx, t, c)
			credentials(ctx, t, c)
			refusals(ctx, t, c)
			_ = c.Close()
			execute(ctx, t, socket)
		})
	}
}

func identity(ctx context.Context, t *testing.T, c *agent.Client, host string) {
	t.Helper()
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}
	if info, err := c.Info(ctx); err != nil || info.Version == "" || len(info.Commands) == 0 {
		t.Errorf("guest-info: %+v, %v", info, err)
	}
	if got, err := c.HostName(ctx); err != nil || got != host {
		t.Errorf("guest-get-host-name: %q, %v", got, err)
	}
	if os, err := c.OSInfo(ctx); err != nil || os.KernelRelease == "" || os.Machine == "" || runtime.GOARCH == "amd64" && os.Machine != "x86_64" {
		t.Errorf("guest-get-osinfo: %+v, %v", os, err)
	}
}

func loopback(ctx context.Context, t *testing.T, c *agent.Client) {
	t.Helper()
	interfaces, err := c.Interfaces(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		for _, a := range i.Addresses {
			if i.Name == "lo" && a == (agent.IPAddress{Type: "ipv4", Address: "127.0.0.1", Prefix: 8}) {
				return
			}
		}
	}
	t.Errorf("no loopback among %+v", interfaces)
}

func execute(ctx context.Context, t *testing.T, socket string) {
	t.Helper()
	again := func(context.Context) (*agent.Client, error) { return dial(t, socket), nil }
	result, err := agent.Exec(ctx, again, "/bin/sh", []string{"-c", "printf out; printf err >&2; sleep 0.1; exit 3"})
	if err != nil || result.ExitCode != 3 || string(result.Stdout) != "out" || string(result.Stderr) != "err" {
		t.Errorf("guest-exec: %+v, %v", result, err)
	}
}

// No system has the user, so nothing changes.
func credentials(ctx context.Context, t *testing.T, c *agent.Client) {
	t.Helper()
	err := c.SetAuthorizedKeys(ctx, "drydock-no-such-user", []string{"ssh-rsa A"})
	var refused *agent.Error
	if !errors.As(err, &refused) || agent.Unsupported(err) || refused.Command != "guest-ssh-add-authorized-keys" {
		t.Errorf("guest-ssh-add-authorized-keys: %v", err)
	}
}

// The agent beside the tests must not set passwords, so this test checks the commands that it would get.
func TestHowCredentialsAreSet(t *testing.T) {
	lines := make(chan string, 8)
	c := dial(t, listen(t, func(conn net.Conn) {
		requests(conn, func(r request) string {
			lines <- r.line
			return `{"return": {}}`
		})
	}))
	for _, step := range []struct {
		err  error
		want string
	}{
		{c.SetAuthorizedKeys(t.Context(), "ann", []string{"ssh-rsa A"}),
			`{"arguments":{"keys":["ssh-rsa A"],"reset":true,"username":"ann"},"execute":"guest-ssh-add-authorized-keys"}`},
		{c.SetAuthorizedKeys(t.Context(), "ann", nil),
			`{"arguments":{"keys":[],"reset":true,"username":"ann"},"execute":"guest-ssh-add-authorized-keys"}`},
		{c.SetPassword(t.Context(), "ann", "hi"),
			`{"arguments":{"crypted":false,"password":"aGk=","username":"ann"},"execute":"guest-set-user-password"}`},
	} {
		var got, want any
		text := <-lines
		if json.Unmarshal([]byte(text), &got) != nil || json.Unmarshal([]byte(step.want), &want) != nil || !reflect.DeepEqual(got, want) || step.err != nil {
			t.Errorf("the agent was told %s, want %s: %v", text, step.want, step.err)
		}
	}
}

func refusals(ctx context.Context, t *testing.T, c *agent.Client) {
	t.Helper()
	for _, command := range []string{"guest-no-such-command", "guest-shutdown"} {
		err := c.Execute(ctx, command, nil, nil)
		var refused *agent.Error
		if !errors.As(err, &refused) || !agent.Unsupported(err) || !strings.Contains(err.Error(), command) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if err := c.Ping(ctx); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}

func TestOthersReachTheAgentWhileAProgramRuns(t *testing.T) {
	runs, pinged := make(chan struct{}), make(chan struct{})
	socket := listen(t, func(conn net.Conn) {
		requests(conn, func(r request) string {
			switch r.Execute {
			case "guest-exec":
				close(runs)
				return `{"return": {"pid": 7}}`
			case "guest-ping":
				close(pinged)
				return `{"return": {}}`
			}
			select {
			case <-pinged:
				return `{"return": {"exitcode": 0, "exited": true}}`
			default:
				return `{"return": {"exited": false}}`
			}
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := agent.Exec(ctx, func(ctx context.Context) (*agent.Client, error) { return agent.Dial(ctx, socket) }, "/bin/long", nil)
		ended <- err
	}()
	<-runs
	c := dial(t, socket)
	if err := c.Ping(ctx); err != nil {
		t.Errorf("a ping while the program runs: %v", err)
	}
	_ = c.Close()
	if err := <-ended; err != nil {
		t.Errorf("the program: %v", err)
	}
}

func TestACrowdedPortIsWaitedFor(t *testing.T) {
	address := filepath.Join(t.TempDir(), "agent.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: address}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	dial(t, address) // takes the only place
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if c, err := agent.Dial(short, address); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, %v", c, err)
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := agent.Dial(t.Context(), address)
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	first, _, err := syscall.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(first) }()
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

func TestAnAgentThatIsNotThereIsGivenUpAtTheDeadline(t *testing.T) {
	c := dial(t, listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestALateAnswerIsNotTakenForTheNextOne(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	c := dial(t, listen(t, func(conn net.Conn) {
		requests(writeBefore{conn, func() string {
			// The hanging command is answered at the next synchronization.
			if asked == 1 {
				return `{"return": {"host-name": "late"}}` + "\n"
			}
			return ""
		}}, func(request) string {
			if asked++; asked == 1 {
				cancel() // the caller gives up after its request
				return ""
			}
			return `{"return": {"host-name": "right"}}`
		})
	}))
	if name, err := c.HostName(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("%q, %v", name, err)
	}
	if name, err := c.HostName(t.Context()); err != nil || name != "right" {
		t.Errorf("%q, %v", name, err)
	}
}

// writeBefore writes something else first.
type writeBefore struct {
	net.Conn
	first func() string
}

func (w writeBefore) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Conn, w.first()); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

func TestWhatAnEarlierCallerLeftIsPassedOver(t *testing.T) {
	c := dial(t, listen(t, func(conn net.Conn) {
		// The port still has an answer, half of another, and an older sync's.
		fmt.Fprint(conn, `{"return": {"host-name": "old"}}`+"\n"+`{"ret`)
		fmt.Fprint(conn, "\xff{\"return\": 1}\n")
		requests(conn, func(request) string { return `{"return": {"host-name": "new"}}` })
	}))
	if name, err := c.HostName(t.Context()); err != nil || name != "new" {
		t.Errorf("%q, %v", name, err)
	}
}

func TestABrokenAgentIsAnError(t *testing.T) {
	for name, answer := range map[string]string{
		"nonsense":       "what?",
		"the wrong type": `{"return": 7}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, listen(t, func(conn net.Conn) {
				requests(conn, func(request) string { return answer })
			}))
			if _, err := c.HostName(t.Context()); err == nil || !strings.Contains(err.Error(), "guest-get-host-name: reading the answer") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAFloodIsCutOff(t *testing.T) {
	c := dial(t, listen(t, func(conn net.Conn) {
		requests(conn, func(request) string {
			flood := strings.Repeat("x", 1<<20)
			for {
				if _, err := io.WriteString(conn, flood); err != nil {
					return ""
				}
			}
		})
	}))
	if err := c.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}
}

// A frozen guest waits for this answer.
func TestWhetherTheGuestIsFrozenIsAskedTogetherWithTheSynchronization(t *testing.T) {
	got := make(chan string, 8)
	c := dial(t, listen(t, func(conn net.Conn) {
		// The port still has an earlier caller's answer.
		fmt.Fprintln(conn, `{"return": "thawed"}`)
		in := bufio.NewReader(conn)
		var id int64
		for _, command := range []string{"guest-sync-delimited", "guest-fsfreeze-status", "guest-fsfreeze-thaw"} {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			var r request
			_ = json.Unmarshal([]byte(line[strings.LastIndexByte(line, 0xff)+1:]), &r) // an invalid command is not the expected one
			got <- r.Execute
			if command == "guest-sync-delimited" {
				id = r.Arguments.ID
				continue // it writes nothing before it has read the next command
			}
			if command == "guest-fsfreeze-status" {
				fmt.Fprintf(conn, "\xff{\"return\": %d}\n{\"return\": \"frozen\"}\n", id)
				continue
			}
			fmt.Fprintln(conn, `{"return": 1}`)
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if status, err := c.FreezeStatus(ctx); err != nil || status != agent.Frozen {
		t.Errorf("%q, %v", status, err)
	}
	if err := c.Thaw(ctx); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"guest-sync-delimited", "guest-fsfreeze-status", "guest-fsfreeze-thaw"} {
		if asked := <-got; asked != want {
			t.Errorf("the agent was asked %q, want %q", asked, want)
		}
	}
}

func TestShutdownDoesNotWaitForAnAnswer(t *testing.T) {
	got := make(chan string, 4)
	c := dial(t, listen(t, func(conn net.Conn) {
		requests(conn, func(r request) string {
			got <- r.Execute
			if r.Execute == "guest-ping" {
				return `{"return": {}}`
			}
			return ""
		})
	}))
	if err := c.Shutdown(t.Context(), "powerdown"); err != nil {
		t.Fatal(err)
	}
	if first, second := <-got, <-got; first != "guest-ping" || second != "guest-shutdown" {
		t.Errorf("the agent was asked %s, %s", first, second)
	}
}
