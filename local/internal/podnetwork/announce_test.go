package podnetwork

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func agentOf(t *testing.T, folder, answer string) <-chan Sandbox {
	t.Helper()
	listener, err := net.Listen("unix", AgentSocket(folder))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	told := make(chan Sandbox, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var sandbox Sandbox
		if json.NewDecoder(conn).Decode(&sandbox) == nil {
			told <- sandbox
			fmt.Fprintln(conn, answer)
		}
	}()
	return told
}

func environment(command string) func(string) string {
	return func(name string) string {
		return map[string]string{
			"CNI_COMMAND": command, "CNI_CONTAINERID": "abc",
			"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u1",
		}[name]
	}
}

const result = `{"cniVersion":"1.0.0","ips":[{"address":"10.77.64.2/24","gateway":"10.77.64.1"},{"address":"fd00::2/64"}]}`

func announcing(folder string) []byte {
	return fmt.Appendf(nil, `{"type":"drydock-cni","policies":%q,"prevResult":%s}`, folder, result)
}

// The pod must get the other plugins' result only after the agent's answer.
func TestThePluginWaitsForTheAgent(t *testing.T) {
	folder := t.TempDir()
	told := agentOf(t, folder, `{}`)
	got, err := Announce(announcing(folder), environment("ADD"))
	if err != nil || got != result {
		t.Errorf("the plugin says %q, %v, want %q", got, err, result)
	}
	if sandbox := fmt.Sprint(<-told); sandbox != "{abc shop web u1 [10.77.64.2]}" {
		t.Errorf("the agent was told %s", sandbox)
	}
}

func TestAnAgentThatCanNotJudgeKeepsThePodWaiting(t *testing.T) {
	folder := t.TempDir()
	told := agentOf(t, folder, `{"error":"the kernel refuses"}`)
	if _, err := Announce(announcing(folder), environment("ADD")); err == nil || err.Error() != "the kernel refuses" {
		t.Errorf("the plugin says %v", err)
	}
	<-told
}

// TestASandboxThatGoesIsForgotten also without an agent: a pod must always be able to end.
func TestASandboxThatGoesIsForgotten(t *testing.T) {
	folder := t.TempDir()
	file := SandboxFile(folder, "abc")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the runtime may repeat the call
		if got, err := Announce(announcing(folder), environment("DEL")); err != nil || got != "" {
			t.Errorf("the plugin says %q, %v", got, err)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the note is there: %v", err)
	}
}

func TestWhichUseAPluginHas(t *testing.T) {
	for configuration, want := range map[string]bool{
		string(announcing("/run/agent")): true, `{"own":{"type":"bridge"}}`: false, `{"policies":""}`: false, `{`: false,
	} {
		if got := Announces([]byte(configuration)); got != want {
			t.Errorf("%s: %t", configuration, got)
		}
	}
	if file := SandboxFile("/run/agent", "../../etc/passwd"); !strings.HasPrefix(file, "/run/agent/sandboxes/") {
		t.Errorf("the note would be %s", file)
	}
}
