; Inno Setup script of the Windows installer, for 6.3 (x64compatible) or later.
; build.ps1 calls: iscc /DVersion=X packaging\windows\millm.iss
#ifndef Version
  #error Say which version: iscc /DVersion=0.1.0 millm.iss
#endif

[Setup]
AppId={{6B5C8F0E-3C55-4E0A-9D0E-0B6E5B1A6D11}
AppName=miLLM Desktop
AppVersion={#Version}
AppPublisher=miLLM Desktop
DefaultDirName={autopf}\miLLM Desktop
DefaultGroupName=miLLM Desktop
DisableProgramGroupPage=yes
PrivilegesRequired=lowest
PrivilegesRequiredOverridesAllowed=dialog
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
ChangesAssociations=yes
Compression=lzma2/max
SolidCompression=yes
LicenseFile=..\..\LICENSE
SetupIconFile=..\out\icons\millm.ico
UninstallDisplayIcon={app}\millm-desktop.exe
OutputDir=..\out
OutputBaseFilename=millm-desktop-{#Version}-windows-x64
; Signing: define the tool in the compiler's settings (see packaging/README.md), then build with /DSign=1.
#ifdef Sign
SignTool=millm
SignedUninstaller=yes
#endif

[Files]
Source: "..\out\dist\millm-desktop\*"; DestDir: "{app}"; Flags: recursesubdirs ignoreversion
Source: "..\..\LICENSE"; DestDir: "{app}"; Flags: ignoreversion
Source: "..\out\THIRD-PARTY-NOTICES.txt"; DestDir: "{app}"; Flags: ignoreversion

[Icons]
Name: "{group}\miLLM Desktop"; Filename: "{app}\millm-desktop.exe"
Name: "{autodesktop}\miLLM Desktop"; Filename: "{app}\millm-desktop.exe"; Tasks: desktopicon

[Tasks]
Name: desktopicon; Description: "{cm:CreateDesktopIcon}"; Flags: unchecked

[Registry]
; Windows knows no ending of two parts, so the documents are offered under "Open with" of .json files.
Root: HKA; Subkey: "Software\Classes\miLLM.Document"; ValueType: string; ValueData: "miLLM cluster or circuit"; Flags: uninsdeletekey
Root: HKA; Subkey: "Software\Classes\miLLM.Document\DefaultIcon"; ValueType: string; ValueData: "{app}\millm-desktop.exe,0"
Root: HKA; Subkey: "Software\Classes\miLLM.Document\shell\open\command"; ValueType: string; ValueData: """{app}\millm-desktop.exe"" gui ""%1"""
Root: HKA; Subkey: "Software\Classes\.json\OpenWithProgids"; ValueType: string; ValueName: "miLLM.Document"; ValueData: ""; Flags: uninsdeletevalue

[Run]
Filename: "{app}\millm-desktop.exe"; Description: "{cm:LaunchProgram,miLLM Desktop}"; Flags: nowait postinstall skipifsilent
