// Package podnetwork decides which network plugin connects a pod of the embedded cluster: the
// node's own, or Multus, for a pod that asks for networks beside the pods' (decision 410); and it tells the
// node's agent of NetworkPolicies of the pod that was connected (decision 650). Its
// program starts with every pod, so that it links nothing but the standard library. It starts no
// program and asks nobody else.
package podnetwork

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// Program is the name of the plugin that decides.
const Program = "drydock-cni"

// Annotations is the capability by which containerd hands a pod's annotations to its plugin.
const Annotations = "io.kubernetes.cri.pod-annotations"

// asking are the annotations by which a pod asks Multus for networks, and for another one in
// place of the pods'.
var asking = []string{"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network"}

// Object is a JSON object of which only some fields are known here.
type Object map[string]json.RawMessage

// Config is the plugin's configuration as a node has it, with what is added for each call.
type Config struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	// Own is the configuration of the node's own plugin, Multus that of Multus without networks.
	Own    Object `json:"own"`
	Multus Object `json:"multus"`
	// MultusProgram is the path of the program.
	MultusProgram string `json:"multusProgram"`

	CNIVersion    string          `json:"cniVersion,omitempty"`
	Name          string          `json:"name,omitempty"`
	PrevResult    json.RawMessage `json:"prevResult,omitempty"`
	RuntimeConfig RuntimeConfig   `json:"runtimeConfig,omitzero"`
}

// RuntimeConfig is what containerd says of the pod.
type RuntimeConfig struct {
	Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
}

// Call is a plugin with the configuration that it is to be called with. Program is a path, or the
// name of a plugin.
type Call struct {
	Program string
	Config  []byte
}

// Choose returns the call that takes the place of the one with the given configuration. A pod's
// annotations are those that it was made with, so that what connects it disconnects it, too.
func Choose(configuration []byte) (Call, error) {
	var c Config
	if err := json.Unmarshal(configuration, &c); err != nil {
		return Call{}, fmt.Errorf("reading the configuration of %s: %w", Program, err)
	}
	var own string
	if err := json.Unmarshal(c.Own["type"], &own); err != nil || own == "" {
		return Call{}, errors.Join(fmt.Errorf("reading the configuration of %s: it does not name the node's own plugin", Program), err)
	}
	if !asks(c.RuntimeConfig.Annotations) {
		return call(own, c, c.Own, Object{"prevResult": c.PrevResult})
	}
	delegate, err := complete(c, c.Own, nil)
	if err != nil {
		return Call{}, err
	}
	delegates, err := json.Marshal([]Object{delegate})
	if err != nil {
		return Call{}, fmt.Errorf("writing the configuration of Multus: %w", err)
	}
	return call(c.MultusProgram, c, c.Multus, Object{"delegates": delegates})
}

// asks reports whether a pod asks for more than the pods' network.
func asks(annotations map[string]string) bool {
	for _, name := range asking {
		if annotations[name] != "" {
			return true
		}
	}
	return false
}

func call(program string, c Config, base, more Object) (Call, error) {
	object, err := complete(c, base, more)
	if err != nil {
		return Call{}, err
	}
	data, err := json.Marshal(object)
	if err != nil {
		return Call{}, fmt.Errorf("writing the configuration of %s: %w", program, err)
	}
	return Call{Program: program, Config: data}, nil
}

// complete adds to a plugin's configuration what a plugin is always told, and those of the
// other fields that are set.
func complete(c Config, base, more Object) (Object, error) {
	object := maps.Clone(base)
	if object == nil {
		object = Object{}
	}
	for field, text := range map[string]string{"cniVersion": c.CNIVersion, "name": c.Name} {
		value, err := json.Marshal(text)
		if err != nil {
			return nil, fmt.Errorf("writing the field %s of a plugin's configuration: %w", field, err)
		}
		object[field] = value
	}
	for field, value := range more {
		if len(value) > 0 {
			object[field] = value
		}
	}
	return object, nil
}
