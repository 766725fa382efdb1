// Package cdi decides whether Drydock or CDI serves DataVolumes, and maintains the definitions of CDI's API while
// Drydock serves it.
//
// CDI is installed if its CustomResourceDefinition cdis.cdi.kubevirt.io, its Deployment cdi-deployment and the CDI object
// that controls the Deployment exist, and CDI's operator operates that object. Then Drydock touches no object of CDI's
// API. It watches all three, so that it stops and starts serving without a restart.
//
// Drydock's manifests do not contain CDI's definitions: applied over CDI's own they would damage them. virt-controller
// creates missing ones before its loops start and when one is deleted, and updates only those with its label (decision
// 123).
//
// While CDI is not installed, Drydock serves CDI objects: their spec.config becomes the CDIConfig's spec (decision 123).
//
// The package owns those definitions and, while Drydock serves the API, CDIConfig's status, the part of its spec that a
// CDI object configures, and the status of CDI objects. It must not read any DataVolume.
package cdi
