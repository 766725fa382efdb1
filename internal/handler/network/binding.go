package network

import (
	"github.com/go-logr/logr"
	v1 "kubevirt.io/api/core/v1"
)

type binding struct {
	name   string
	chosen func(*v1.InterfaceBindingMethod) bool
	// setup is nil for a binding that is not supported.
	setup setup
}

// setup's servers are the caller's to close, even after an error.
type setup func(pod Pod, p plan, log logr.Logger) (Interface, []server, error)

var bindings = []binding{
	{"masquerade", func(m *v1.InterfaceBindingMethod) bool { return m.Masquerade != nil }, setupMasquerade},
	{"bridge", func(m *v1.InterfaceBindingMethod) bool { return m.Bridge != nil }, setupBridge},
	{"sriov", func(m *v1.InterfaceBindingMethod) bool { return m.SRIOV != nil }, setupDevice},
	{"macvtap", func(m *v1.InterfaceBindingMethod) bool { return m.DeprecatedMacvtap != nil }, nil},
	{"passt", func(m *v1.InterfaceBindingMethod) bool { return m.DeprecatedPasst != nil }, nil},
	{"slirp", func(m *v1.InterfaceBindingMethod) bool { return m.DeprecatedSlirp != nil }, nil},
	{"passtBinding", func(m *v1.InterfaceBindingMethod) bool { return m.PasstBinding != nil }, nil},
}
