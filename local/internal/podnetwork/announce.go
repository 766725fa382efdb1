package podnetwork

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Sandbox is a pod with addresses, as announced to the policy agent.
type Sandbox struct {
	Container string       `json:"container"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid"`
	Addresses []netip.Addr `json:"addresses"`
}

// Answer has an error if the pod's policies are not enforced.
type Answer struct {
	Error string `json:"error,omitempty"`
}

// AgentSocket returns the agent's socket in its folder.
func AgentSocket(folder string) string { return filepath.Join(folder, "agent.sock") }

// SandboxFile returns a sandbox's file. The container runtime chooses the ID.
func SandboxFile(folder, container string) string {
	return filepath.Join(folder, "sandboxes", filepath.Base("/"+container))
}

// patience allows for an agent that is starting. The kubelet retries after it.
const patience = 20 * time.Second

type announcement struct {
	// Policies is the agent's folder, empty for the plugin's other use.
	Policies   string          `json:"policies"`
	PrevResult json.RawMessage `json:"prevResult"`
}

// Announces reports whether a configuration is the last plugin's.
func Announces(configuration []byte) bool {
	var a announcement
	return json.Unmarshal(configuration, &a) == nil && a.Policies != ""
}

// Announce is the last plugin of the chain. For a new pod it waits until the node's agent enforces its policies, so
// that no container starts before. It returns the previous plugins' result. env has the CNI variables.
func Announce(configuration []byte, env func(string) string) (string, error) {
	var a announcement
	if err := json.Unmarshal(configuration, &a); err != nil {
		return "", fmt.Errorf("reading the configuration of %s: %w", Program, err)
	}
	container := env("CNI_CONTAINERID")
	if container == "" {
		return "", errors.New("the container runtime does not name the pod's sandbox")
	}
	switch env("CNI_COMMAND") {
	case "DEL":
		// The address may be reused for another pod, which will be announced.
		err := os.Remove(SandboxFile(a.Policies, container))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return "", err
	case "ADD":
	default:
		return "", nil // CHECK: nothing to check
	}
	addresses, err := addressesOf(a.PrevResult)
	if err != nil {
		return "", err
	}
	args := map[string]string{}
	for pair := range strings.SplitSeq(env("CNI_ARGS"), ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			args[name] = value
		}
	}
	err = tell(a.Policies, Sandbox{
		Container: container, Addresses: addresses,
		Namespace: args["K8S_POD_NAMESPACE"], Name: args["K8S_POD_NAME"], UID: args["K8S_POD_UID"],
	})
	return string(a.PrevResult), err
}

func addressesOf(result json.RawMessage) ([]netip.Addr, error) {
	var said struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &said); err != nil {
		return nil, fmt.Errorf("reading the addresses that the pod was given: %w", err)
	}
	var addresses []netip.Addr
	for _, ip := range said.IPs {
		if ip.Address.Addr().Is4() {
			addresses = append(addresses, ip.Address.Addr())
		}
	}
	return addresses, nil
}

func tell(folder string, sandbox Sandbox) error {
	deadline := time.Now().Add(patience)
	conn, err := dial(AgentSocket(folder), deadline)
	if err != nil {
		return fmt.Errorf("announcing pod %s/%s to the node's agent of network policies, whose log is drydock-policies: %w", sandbox.Namespace, sandbox.Name, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("limiting the wait for the agent of network policies: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(sandbox); err != nil {
		return fmt.Errorf("telling the agent of network policies of pod %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	var answer Answer
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return fmt.Errorf("waiting for the network policies of pod %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// The agent may be starting.
func dial(socket string, deadline time.Time) (net.Conn, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.DialTimeout("unix", socket, time.Second)
		if err == nil || time.Now().After(deadline) {
			return conn, err
		}
		<-tick.C
	}
}
