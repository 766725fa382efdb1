package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asPlugin turns the test's program into the plugin.
const asPlugin = "DRYDOCK_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// plugin calls the plugin as containerd does.
func plugin(t *testing.T, command, folder, configuration string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{asPlugin + "=1", "CNI_COMMAND=" + command, "CNI_PATH=/nowhere:" + folder, "CNI_IFNAME=eth0"}
	cmd.Stdin = strings.NewReader(configuration)
	out, err := cmd.Output()
	return string(out), err
}

// TestItBecomesThePlugin: the node's own plugin is a script that prints its call.
func TestItBecomesThePlugin(t *testing.T) {
	folder := t.TempDir()
	script := filepath.Join(folder, "own")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $CNI_COMMAND $CNI_IFNAME $(cat)\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const configuration = `{"cniVersion":"1.0.0","name":"drydock","own":{"type":"own"},"multusProgram":"`
	out, err := plugin(t, "ADD", folder, configuration+`/nowhere/multus"}`)
	if want := `ADD eth0 {"cniVersion":"1.0.0","name":"drydock","type":"own"}` + "\n"; err != nil || out != want {
		t.Errorf("the plugin says %q, %v, want %q", out, err, want)
	}
	asking := `","runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":"red"}}}`
	out, err = plugin(t, "DEL", folder, configuration+script+asking)
	if want := `DEL eth0 {"cniVersion":"1.0.0","delegates":[{"cniVersion":"1.0.0","name":"drydock","type":"own"}],"name":"drydock"}` + "\n"; err != nil || out != want {
		t.Errorf("Multus says %q, %v, want %q", out, err, want)
	}
}

func TestFailuresAreAnsweredAsTheSpecificationWants(t *testing.T) {
	for configuration, want := range map[string]string{
		`{"own":{"type":"own"}}`: "looking for the network plugin own: it is not in /nowhere:",
		`{}`:                     "does not name the node's own plugin",
	} {
		out, err := plugin(t, "ADD", t.TempDir(), configuration)
		var said struct {
			CNIVersion, Msg string
			Code            int
		}
		if jsonErr := json.Unmarshal([]byte(out), &said); err == nil || jsonErr != nil || said.CNIVersion != "1.0.0" || said.Code != 999 || !strings.Contains(said.Msg, want) {
			t.Errorf("with %s it says %q (%v, %v), want the message %q", configuration, out, err, jsonErr, want)
		}
	}
}

func TestItSaysWhichVersionsItSpeaks(t *testing.T) {
	out, err := plugin(t, "VERSION", t.TempDir(), `{"cniVersion":"1.0.0"}`)
	if want := `{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}` + "\n"; err != nil || out != want {
		t.Errorf("it says %q, %v, want %q", out, err, want)
	}
}
