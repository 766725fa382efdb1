// Package cdi decides whether Drydock or CDI serves DataVolumes, and keeps the
// definitions of CDI's API while Drydock serves it.
//
// CDI is installed when its CustomResourceDefinition cdis.cdi.kubevirt.io, its
// Deployment cdi-deployment and the CDI object that controls the Deployment
// exist, and CDI's operator has that object. Then Drydock leaves every object of
// CDI's API alone. All of them are watched, so that it stands down and takes over
// without a restart.
//
// Drydock's manifests do not contain CDI's definitions: applied over CDI's own
// they would damage them. virt-controller creates those that are missing,
// before its loops start and whenever one is deleted, and updates those with its
// label; it leaves all others alone (decision 123).
//
// Where it is not, a CDI object has Drydock serve it: its spec.config becomes the
// CDIConfig's spec, and its status says so (decision 645).
//
// It owns those definitions, and while Drydock serves CDIConfig's status, its spec
// as far as a CDI object says it, and the status of CDI objects. It must not look
// at any DataVolume.
package cdi
