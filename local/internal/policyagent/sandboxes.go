package policyagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/podnetwork"
	"drydock.dev/local/internal/podpolicy"
)

type sandbox struct {
	podnetwork.Sandbox
	// Object is the UID of the pod's object. Labels and Ports are from its last observation.
	Object types.UID         `json:"object"`
	Labels map[string]string `json:"labels,omitempty"`
	Ports  []podpolicy.Port  `json:"ports,omitempty"`
}

// sandboxes are the sandboxes of the node. The CNI plugin deletes a sandbox's file.
type sandboxes struct {
	folder string

	mu    sync.Mutex
	known map[string]sandbox
}

func openSandboxes(folder string) (*sandboxes, error) {
	s := &sandboxes{folder: folder, known: map[string]sandbox{}}
	of := filepath.Dir(s.file("any"))
	if err := os.MkdirAll(of, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for notes of sandboxes: %w", err)
	}
	entries, err := os.ReadDir(of)
	if err != nil {
		return nil, fmt.Errorf("reading the notes of sandboxes: %w", err)
	}
	for _, entry := range entries {
		var found sandbox
		data, err := os.ReadFile(s.file(entry.Name()))
		if err == nil && json.Unmarshal(data, &found) == nil && found.Container == entry.Name() {
			s.known[found.Container] = found
		}
	}
	return s, nil
}

func (s *sandboxes) file(container string) string { return podnetwork.SandboxFile(s.folder, container) }

func (s *sandboxes) note(new sandbox) error {
	data, err := json.Marshal(new)
	if err != nil {
		return fmt.Errorf("encoding the note of sandbox %s: %w", new.Container, err)
	}
	if err := layout.WriteFile(s.file(new.Container), data, 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[new.Container] = new
	return nil
}

func (s *sandboxes) forget(container string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, container)
	if err := os.Remove(s.file(container)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting the note of sandbox %s: %w", container, err)
	}
	return nil
}

func (s *sandboxes) pods(objects []*corev1.Pod, node string) []podpolicy.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	for container := range s.known {
		if _, err := os.Stat(s.file(container)); errors.Is(err, fs.ErrNotExist) {
			delete(s.known, container)
		}
	}
	byUID := map[types.UID]*corev1.Pod{}
	for _, object := range objects {
		byUID[object.UID] = object
	}
	var pods []podpolicy.Pod
	for container, box := range s.known {
		if object := byUID[box.Object]; object != nil {
			if seen, ok := podpolicy.PodOf(object, node); ok {
				box.Labels, box.Ports = seen.Labels, seen.Ports
				s.known[container] = box
			}
		}
		pods = append(pods, podpolicy.Pod{
			UID: box.Object, Namespace: box.Namespace, Labels: box.Labels, Addresses: box.Addresses, Ports: box.Ports, Local: true,
		})
	}
	return pods
}
