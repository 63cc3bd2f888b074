package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolated says, in the environment, that this process has a network of its own.
const isolated = "KDAPL_DEBIAN_NETWORK"

// isolate runs this command again with a loopback network of its own, in which nobody else has the ports that the
// programs need, and returns its exit code. done is false if there is no more to isolate, or the system does not
// let it.
func isolate() (code int, done bool) {
	if os.Getenv(isolated) != "" {
		return 0, false
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	err := cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode(), true
	}
	return 0, true
}

// loopback brings up the loopback interface of a network of one's own.
func loopback() error {
	if os.Getenv(isolated) == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}
