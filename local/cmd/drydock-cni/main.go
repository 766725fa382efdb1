// Command drydock-cni is the CNI plugin that containerd calls for each pod. It replaces itself by the node's main
// plugin, or by Multus for a pod with secondary networks (decision 410). As the last plugin of the chain it waits
// until the pod's NetworkPolicies are enforced (decision 650).
//
// It must stay small: it runs at the start and at the end of every pod.
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
	// internalError is for errors without a code in the CNI specification.
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

func serve() error {
	configuration, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("reading the configuration of %s: %w", podnetwork.Program, err)
	}
	if !podnetwork.Announces(configuration) {
		call, err := podnetwork.Choose(configuration)
		if err != nil {
			return err
		}
		program, err := find(call.Program, os.Getenv("CNI_PATH"))
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
	result, err := podnetwork.Announce(configuration, os.Getenv)
	if err == nil {
		fmt.Print(result)
	}
	return err
}

func answer(what map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", podnetwork.Program, err)
	}
}

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
