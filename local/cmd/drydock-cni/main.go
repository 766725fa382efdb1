// Command drydock-cni is the network plugin that containerd calls for each pod. It becomes the
// node's own plugin, or Multus for a pod that asks for networks beside the pods' (decision 410). At the
// end of the chain it waits until the pod is judged by its NetworkPolicies (decision 650).
// It is small, because it starts with every pod and again at its end.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/podnetwork"
)

const (
	cniVersion = "1.0.0"
	// internalError is the code for errors that the CNI specification has none for.
	internalError = 999
)

func main() {
	if os.Getenv("CNI_COMMAND") == "VERSION" {
		answer(map[string]any{"cniVersion": cniVersion, "supportedVersions": []string{"0.4.0", cniVersion}})
		return
	}
	if err := serve(); err != nil {
		answer(map[string]any{"cniVersion": cniVersion, "code": internalError, "msg": err.Error()})
		os.Exit(1)
	}
}

// serve is the plugin's one use or the other.
func serve() error {
	configuration, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("reading the configuration of %s: %w", podnetwork.Program, err)
	}
	if !podnetwork.Announces(configuration) {
		// It returns only when something failed.
		return become(configuration, os.Getenv("CNI_PATH"))
	}
	result, err := podnetwork.Announce(configuration, os.Getenv)
	if err == nil {
		fmt.Print(result)
	}
	return err
}

// answer tells whoever called, as the CNI specification wants it.
func answer(what map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", podnetwork.Program, err)
	}
}

// become replaces this program by the plugin that connects the pod.
func become(configuration []byte, folders string) error {
	call, err := podnetwork.Choose(configuration)
	if err != nil {
		return err
	}
	program, err := find(call.Program, folders)
	if err != nil {
		return err
	}
	if err := feed(call.Config); err != nil {
		return fmt.Errorf("handing %s its configuration: %w", program, err)
	}
	if err := unix.Exec(program, []string{program}, os.Environ()); err != nil {
		return fmt.Errorf("starting the network plugin %s: %w", program, err)
	}
	return nil
}

// find looks for a plugin in the folders of plugins.
func find(plugin, folders string) (string, error) {
	if filepath.IsAbs(plugin) {
		return plugin, nil
	}
	for _, folder := range filepath.SplitList(folders) {
		path := filepath.Join(folder, plugin)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("looking for the network plugin %s: it is not in %s", plugin, folders)
}

// feed makes the configuration the standard input.
func feed(configuration []byte) error {
	fd, err := unix.MemfdCreate("configuration", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "configuration")
	defer file.Close()
	if _, err := file.Write(configuration); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return unix.Dup2(int(file.Fd()), unix.Stdin)
}
