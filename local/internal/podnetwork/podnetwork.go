// Package podnetwork decides which CNI plugin connects a pod: the node's main plugin, or Multus for a pod with
// secondary networks (decision 410). It also announces connected pods to the node's NetworkPolicy agent
// (decision 650). Its program runs for every pod, so it must link only the standard library. It starts no program
// and talks only to the agent.
package podnetwork

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Program is the deciding plugin.
const Program = "drydock-cni"

// Annotations is the CNI capability for a pod's annotations.
const Annotations = "io.kubernetes.cri.pod-annotations"

// asking are the annotations that request secondary networks, or another default network, from Multus.
var asking = []string{"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network"}

// Object is a JSON object with unknown fields.
type Object map[string]json.RawMessage

// Config is the plugin's configuration, with the runtime's fields of each call.
type Config struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	// Own configures the node's main plugin, Multus configures Multus without networks.
	Own           Object `json:"own"`
	Multus        Object `json:"multus"`
	MultusProgram string `json:"multusProgram"`

	CNIVersion    string          `json:"cniVersion,omitempty"`
	Name          string          `json:"name,omitempty"`
	PrevResult    json.RawMessage `json:"prevResult,omitempty"`
	RuntimeConfig RuntimeConfig   `json:"runtimeConfig,omitzero"`
}

// RuntimeConfig has the pod's data from containerd.
type RuntimeConfig struct {
	Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
}

// Call is a plugin and its configuration. Program is a path or a name.
type Call struct {
	Program string
	Config  []byte
}

// Choose returns the plugin's call. The annotations are from the pod's creation, so the same plugin connects and
// disconnects it.
func Choose(configuration []byte) (Call, error) {
	var c Config
	if err := json.Unmarshal(configuration, &c); err != nil {
		return Call{}, fmt.Errorf("reading the configuration of %s: %w", Program, err)
	}
	var own string
	if err := json.Unmarshal(c.Own["type"], &own); err != nil || own == "" {
		return Call{}, errors.Join(fmt.Errorf("reading the configuration of %s: it does not name the node's own plugin", Program), err)
	}
	if !slices.ContainsFunc(asking, func(name string) bool { return c.RuntimeConfig.Annotations[name] != "" }) {
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

// complete returns a plugin's configuration with the standard fields and the non-empty fields of more.
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
