#!/usr/bin/env perl
# Holds resources by `locket keychain`, a process that keeps claims alive, and releases them
# when this program ends in any way. It can be copied; it needs only the modules of Perl itself
# and the program `locket`.
#
#     my $keychain = Locket::Keychain->new('http://127.0.0.1:8892', '--ttl', '15s');
#     my $claim = $keychain->claim('nightly-report', timeout => 60);   # waits for its turn
#     store(work(), $claim->token);
#     $claim->check;
#     undef $claim;                                                    # gives it back
#
# As a program it holds a resource while a command runs, and stops the command before another owner can hold the resource, unless
# this program is stopped meanwhile (SIGSTOP, Ctrl-Z): then the command ends when the program continues. When this program is killed, the keychain releases the resource at the same moment, and only the token protects it:
#
#     keychain.pl http://127.0.0.1:8892 nightly-report sh -c 'echo $FENCING_TOKEN; sleep 60'

package Locket::Keychain;

use strict;
use warnings;

use Errno  ();
use JSON::PP ();
use POSIX  ();
use Socket qw(AF_UNIX SOCK_STREAM PF_UNSPEC);

my $json = JSON::PP->new->utf8;

sub new {
    my ($class, $url, @options) = @_;
    socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!\n";
    my $program = $ENV{LOCKET} // 'locket';
    my $pid = fork() // die "fork: $!\n";
    if (!$pid) {
        # It has a process group of its own, so that Ctrl-C reaches this program alone, which then releases its claims.
        setpgrp(0, 0);
        open(STDIN, '<&', $theirs) && open(STDOUT, '>&', $theirs)
            && exec $program, 'keychain', '--url', $url, '--notices', @options;
        warn "$program: $!\n";
        POSIX::_exit(127);
    }
    return bless {
        socket => $ours, pid => $pid, owner => $$, serial => 0, input => '',
        answers => {},    # by serial
        lost    => {},    # by the id of the claim
    }, $class;
}

# claim waits until the resource is held. The parameters: ttl and timeout in seconds, user_data, mode, owner.
sub claim {
    my ($self, $resource, %args) = @_;
    my $serial = $self->tell('claim', $resource, \%args);
    my $answer = eval { $self->answer($serial) };
    if (!$answer) {    # such as a signal: the claim must not delay others
        my $error = $@;
        eval { $self->tell('release', $resource) };
        die $error;
    }
    die "$answer->{error_message}\n" if $answer->{result} ne 'succeeded';
    return bless { keychain => $self, resource => $resource, id => $answer->{id}, token => $answer->{token} }, 'Locket::Claim';
}

sub ping { return shift->call('ping') }

# shutdown releases everything.
sub shutdown {
    my ($self) = @_;
    eval { $self->call('shutdown') };
    my $error = $@;
    close delete $self->{socket};
    waitpid $self->{pid}, 0;
    die $error if $error;
    return;
}

# call sends a request to the keychain, and waits for its answer.
sub call {
    my $self   = shift;
    my $answer = $self->answer($self->tell(@_));
    die "$answer->{error_message}\n" if $answer->{result} ne 'succeeded';
    return $answer;
}

# answer waits for the answer to a request.
sub answer {
    my ($self, $serial) = @_;
    $self->take(undef) until $self->{answers}{$serial};
    return delete $self->{answers}{$serial};
}

# tell sends a request, and returns its serial number.
sub tell {
    my ($self, $command, $resource, $args) = @_;
    my $serial = ++$self->{serial};
    my $text = $json->encode({ command => $command, resource_name => $resource // '', serial => $serial, args => $args });
    local $SIG{PIPE} = 'IGNORE';
    while (length $text) {
        my $n = syswrite $self->{socket}, $text;
        next if !defined $n && $!{EINTR};
        die "the keychain is gone\n" unless defined $n;
        substr($text, 0, $n, '');
    }
    return $serial;
}

# take waits for the next line of the keychain, for a number of seconds; with undef without a limit.
sub take {
    my ($self, $seconds) = @_;
    my $ready = '';
    vec($ready, fileno $self->{socket}, 1) = 1;
    return if select($ready, undef, undef, $seconds) < 1;
    my $n = sysread $self->{socket}, $self->{input}, 65536, length $self->{input};
    return if !defined $n && $!{EINTR};
    die "the keychain is gone\n" unless $n;
    while ($self->{input} =~ s/^(.*)\n//) {
        my $message = $json->decode("$1");
        if (exists $message->{serial}) {
            $self->{answers}{ $message->{serial} } = $message;
        } else {
            $self->{lost}{ $message->{id} } = 1 if $message->{notice} eq 'lost';
            warn "keychain: $message->{error_message}\n";
        }
    }
    return;
}

package Locket::Claim;

# token is the fencing token: what stores the result refuses a smaller one.
sub token { return shift->{token} }

# lost returns whether the resource is lost. It waits for that for a number of seconds.
sub lost {
    my ($self, $seconds) = @_;
    $self->{keychain}->take($seconds // 0);
    return $self->{keychain}{lost}{ $self->{id} };
}

# check dies unless the server says that the resource is held.
sub check {
    my ($self) = @_;
    return $self->{keychain}->call('validate', $self->{resource});
}

sub release {
    my ($self) = @_;
    return if $self->{released}++;
    my $lost = delete $self->{keychain}{lost}{ $self->{id} };
    return $self->{keychain}->call('release', $self->{resource}) unless $lost;
}

# At the end of the program the keychain releases it; after a fork, this object is a copy.
sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $$ != $self->{keychain}{owner} || !$self->{keychain}{socket};
    local ($@, $!, $?);
    eval { $self->release; 1 } or warn "keychain: $@";
    return;
}

package main;

use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC);

use constant {
    TTL    => '15s',    # the server keeps a claim that is not renewed for this time
    MARGIN => '4s',     # a claim that could not be renewed is lost this time earlier
    GRACE  => 2,        # of these the command has this time to end; the rest is a margin

    # The guard runs a moment longer than this program: when this program has ended in any way, the pipe is
    # closed, and the guard kills the process group of the command.
    GUARD => 'read -r _; kill -s KILL -- "-$1"',
};

# start starts a command in a process group of its own, and returns the group's number. With a gate, the ends of
# a pipe, the command begins when something is read from there, and never if the other end is closed before.
sub start {
    my ($input, $gate, @command) = @_;
    my $pid = fork() // die "fork: $!\n";
    if (!$pid) {
        POSIX::setsid();
        $SIG{$_} = 'DEFAULT' for qw(INT TERM);
        open STDIN, '<&', $input;
        POSIX::_exit(1) if $gate && !(close $gate->[1] and sysread $gate->[0], my $line, 1);
        exec @command or warn "$command[0]: $!\n";
        POSIX::_exit(127);
    }
    sleep 0.001 until getpgrp $pid == $pid;
    return $pid;
}

# run runs a command while a claim is held, and returns its status as a shell does. When the claim is
# lost, or this program gets INT or TERM, the command gets TERM, and KILL after GRACE. All processes of
# its group are stopped with it, also when the command has ended by itself, so that nothing runs
# without the lock. Processes that leave the group (setsid) are not found.
sub run {
    my ($claim, @command) = @_;
    my ($stopped, $status);
    local @SIG{qw(INT TERM)} = (sub { $stopped = "stopped\n" }) x 2;
    local $ENV{FENCING_TOKEN} = $claim->token;
    pipe my $input, my $alive or die "pipe: $!\n";
    pipe my $gate, my $opener or die "pipe: $!\n";
    my $group = start(\*STDIN, [$gate, $opener], @command);
    my $guard = start($input, undef, 'sh', '-c', GUARD, 'guard', $group);
    syswrite $opener, "\n";    # the guard runs: the command may begin
    close $_ for $opener, $gate;
    my $signal = sub {    # sends a signal to the group, 0 for none; returns whether any process of it is left
        $status = $? if !defined $status && waitpid($group, POSIX::WNOHANG()) == $group;
        return kill $_[0], -$group;
    };
    until ($stopped || !$signal->(0) || defined $status) {
        eval { die "lost the claim\n" if $claim->lost(0.05); 1 } or $stopped = $@;
    }
    my $kill_at = clock_gettime(CLOCK_MONOTONIC) + GRACE;
    for (['TERM', $kill_at], ['KILL', $kill_at + 1]) {
        my ($number, $deadline) = @$_;
        $signal->($number);
        sleep 0.01 while $signal->(0) && clock_gettime(CLOCK_MONOTONIC) < $deadline;
    }
    kill KILL => $guard;
    waitpid $guard, 0;
    die $stopped if $stopped;
    return $status & 127 ? 128 + ($status & 127) : $status >> 8;
}

sub main {
    my ($url, $resource, @command) = @_;
    $SIG{$_} = sub { die "stopped\n" } for qw(INT TERM);
    my $keychain = Locket::Keychain->new($url, '--ttl', TTL, '--margin', MARGIN);
    my $claim    = $keychain->claim($resource);
    my $status   = run($claim, @command);
    $claim->release;
    $keychain->shutdown;
    return $status;
}

unless (caller) {
    die "usage: keychain.pl URL RESOURCE COMMAND...\n" if @ARGV < 3;
    my $status = eval { main(@ARGV) };
    if (!defined $status) {
        print STDERR $@;
        exit 1;
    }
    exit $status;
}

1;
