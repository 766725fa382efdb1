package virtctl

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// patience bounds each wait in the scripts.
const patience = 4 * time.Minute

// The scripts run virtctl as a program, and stand-ins for the programs that it runs.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"virtctl":       func() { os.Exit(Main()) },
		"kubectl-virt":  func() { os.Exit(Main()) },
		"ssh":           standInSSH,
		"scp":           standInSSH,
		"remote-viewer": standInViewer,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"object":   putObject,
			"answer":   putAnswer,
			"conflict": putConflict,
			"follows":  putFollowing,
			"requests": compareRequests,
			"talk":     talk,
			"typed":    compareTyped,
		},
	})
}

func setUp(e *testscript.Env) error {
	server := &apiServer{objects: map[string]*unstructured.Unstructured{}, answers: map[string]answer{}, conflicts: map[string]bool{}, follows: map[string][]*unstructured.Unstructured{}}
	listener := httptest.NewTLSServer(server)
	e.Defer(func() {
		listener.CloseClientConnections()
		listener.Close()
		server.guests.Wait()
	})
	config := api.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listener.Certificate().Raw})
	config.Clusters["test"] = &api.Cluster{Server: listener.URL, CertificateAuthorityData: authority}
	config.AuthInfos["ann"] = &api.AuthInfo{Token: token}
	config.AuthInfos["stranger"] = &api.AuthInfo{Token: "none"}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "ann", Namespace: "lab"}
	config.Contexts["stranger"] = &api.Context{Cluster: "test", AuthInfo: "stranger", Namespace: "lab"}
	config.CurrentContext = "test"
	path := filepath.Join(e.WorkDir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	e.Values["server"] = server
	e.Setenv("KUBECONFIG", path)
	e.Setenv("HOME", e.WorkDir)
	for _, name := range []string{"PORT1", "PORT2"} {
		port, err := freePort()
		if err != nil {
			return err
		}
		e.Setenv(name, strconv.Itoa(port))
	}
	return nil
}

// The port is outside the kernel's ephemeral range, so that it is still free when the program listens there.
func freePort() (int, error) {
	const first, count = 12000, 20000
	var problem error
	for range 100 {
		port := first + rand.N(count)
		var listener net.Listener
		if listener, problem = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); problem == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", problem)
}

func serverOf(ts *testscript.TestScript) *apiServer { return ts.Value("server").(*apiServer) }

// object FILE: the object exists from now on.
func putObject(ts *testscript.TestScript, _ bool, args []string) {
	object := &unstructured.Unstructured{}
	ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(args[0])), &object.Object))
	serverOf(ts).put(object)
}

// follows METHOD PATH FILE...: after such a request the object in the first file exists, and a watch changes it to
// those in the others.
func putFollowing(ts *testscript.TestScript, _ bool, args []string) {
	var objects []*unstructured.Unstructured
	for _, file := range args[2:] {
		object := &unstructured.Unstructured{}
		ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(file)), &object.Object))
		objects = append(objects, object)
	}
	server := serverOf(ts)
	server.mu.Lock()
	defer server.mu.Unlock()
	server.follows[args[0]+" "+args[1]] = objects
}

// conflict METHOD PATH: the next such request is refused.
func putConflict(ts *testscript.TestScript, _ bool, args []string) {
	server := serverOf(ts)
	server.mu.Lock()
	defer server.mu.Unlock()
	server.conflicts[args[0]+" "+args[1]] = true
}

// answer METHOD PATH CODE FILE: requests are answered with the file.
func putAnswer(ts *testscript.TestScript, _ bool, args []string) {
	code, err := strconv.Atoi(args[2])
	ts.Check(err)
	server := serverOf(ts)
	server.mu.Lock()
	defer server.mu.Unlock()
	server.answers[args[0]+" "+args[1]] = answer{code, ts.ReadFile(args[3])}
}

// requests FILE: the requests since the last call are exactly those of the file.
func compareRequests(ts *testscript.TestScript, _ bool, args []string) {
	got, want := serverOf(ts).take(), ""
	if len(args) > 0 {
		want = ts.ReadFile(args[0])
	}
	if got != want {
		ts.Fatalf("the server was asked for:\n%swanted:\n%s", got, want)
	}
}

// typed TEXT: the consoles got exactly this input since the last call.
func compareTyped(ts *testscript.TestScript, _ bool, args []string) {
	server := serverOf(ts)
	server.guests.Wait()
	server.mu.Lock()
	defer server.mu.Unlock()
	if got, want := server.typed.String(), strings.ReplaceAll(args[0], `\n`, "\n"); got != want {
		ts.Fatalf("the guest was sent %q instead of %q", got, want)
	}
	server.typed.Reset()
}

// talk NETWORK ADDRESS TEXT ANSWER: a local port answers a text, in which
//
// is a newline. It waits until the port listens.
func talk(ts *testscript.TestScript, _ bool, args []string) {
	network, address, text, want := args[0], args[1], args[2], strings.ReplaceAll(args[3], `\n`, "\n")
	deadline := time.Now().Add(patience)
	var problem error
	for tick := time.Tick(20 * time.Millisecond); time.Now().Before(deadline); {
		var got string
		if got, problem = exchange(network, address, text, len(want)); problem == nil {
			if got != want {
				ts.Fatalf("%s answered %q instead of %q", address, got, want)
			}
			return
		}
		<-tick // a foreign program does not announce that it listens
	}
	ts.Fatalf("%s does not answer: %v", address, problem)
}

func exchange(network, address, text string, length int) (string, error) {
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	wait := patience
	if network == "udp" {
		wait = 2 * time.Second // a datagram may be lost before the program listens; talk sends it again
	}
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	answer := make([]byte, length)
	n, err := io.ReadAtLeast(conn, answer, length)
	return string(answer[:n]), err
}

// standInSSH prints its arguments, one per line, and the answer of its ProxyCommand's other end to "hello".
func standInSSH() {
	for _, argument := range os.Args[1:] {
		option, isProxy := strings.CutPrefix(argument, "ProxyCommand=")
		if !isProxy {
			fmt.Println(argument)
			continue
		}
		answer, err := askProxy("exec " + strings.ReplaceAll(option, "%%", "%"))
		fmt.Printf("proxy answers %q %v\n", answer, err)
	}
	if code, err := strconv.Atoi(os.Getenv("SSH_EXIT")); err == nil {
		os.Exit(code)
	}
}

// ssh ends a ProxyCommand by SIGHUP while its input is open. The signal is ignored at first, as for everything
// that nohup starts.
func askProxy(command string) (string, error) {
	proxy := exec.Command("/bin/sh", "-c", "trap '' HUP; "+command)
	proxy.Stderr = os.Stderr
	in, err := proxy.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := proxy.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := proxy.Start(); err != nil {
		return "", err
	}
	answer := make([]byte, len("echo:hello"))
	if _, err = io.WriteString(in, "hello"); err == nil {
		_, err = io.ReadFull(out, answer)
	}
	_ = proxy.Process.Signal(syscall.SIGHUP)
	_ = proxy.Wait() // the signal ends it, which is no success
	return string(answer), err
}

func standInViewer() {
	address, err := url.Parse(os.Args[1])
	if err == nil {
		var conn net.Conn
		if conn, err = net.Dial("tcp", address.Host); err == nil {
			var line string
			line, err = bufio.NewReader(conn).ReadString('\n')
			fmt.Print("the viewer sees ", line)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
